"""The routes: which operation each one is."""

from __future__ import annotations

from typing import Final

from edge_rag.server.http.calls import HttpRoute
from edge_rag.server.http.documents import get_document
from edge_rag.server.http.openai.chat import chat, question_of
from edge_rag.server.http.openai.encoding import embeddings, rerank
from edge_rag.server.http.openai.files import create_file, delete_file, get_content, get_file, list_files
from edge_rag.server.http.openai.models import get_model, list_models
from edge_rag.server.http.openai.responses import create_response, response_question_of
from edge_rag.server.http.openai.vector_stores import (
    create_store,
    delete_store,
    get_store,
    list_stores,
    query_of,
    search_store,
    update_store,
)
from edge_rag.server.http.uploads import (
    continue_upload,
    create_upload,
    delete_upload,
    describe_uploads,
    get_upload,
)
from edge_rag.service import collections, documents, files
from edge_rag.service.ask import ASK, SEARCH
from edge_rag.service.inference import encoding

ROUTES: Final = (
    HttpRoute("GET", "/v1/models", collections.LIST_COLLECTIONS, list_models),
    HttpRoute("GET", "/v1/models/{model:path}", collections.GET_COLLECTION, get_model),
    HttpRoute("POST", "/v1/chat/completions", ASK, chat, question_of),
    HttpRoute("POST", "/v1/embeddings", encoding.EMBED_TEXTS, embeddings),
    HttpRoute("POST", "/v1/rerank", encoding.RERANK_TEXTS, rerank),
    HttpRoute("POST", "/v2/rerank", encoding.RERANK_TEXTS, rerank),
    HttpRoute("POST", "/v1/responses", ASK, create_response, response_question_of),
    HttpRoute("POST", "/v1/files", files.CREATE_FILE, create_file, streams=True),
    HttpRoute("GET", "/v1/files", files.LIST_FILES, list_files),
    HttpRoute("GET", "/v1/files/{file}", files.GET_FILE, get_file),
    HttpRoute("DELETE", "/v1/files/{file}", files.DELETE_FILE, delete_file),
    HttpRoute("GET", "/v1/files/{file}/content", files.READ_FILE, get_content),
    HttpRoute("GET", "/v1/vector_stores", collections.LIST_COLLECTIONS, list_stores),
    HttpRoute("POST", "/v1/vector_stores", collections.CREATE_COLLECTION, create_store),
    HttpRoute("GET", "/v1/vector_stores/{store}", collections.GET_COLLECTION, get_store),
    HttpRoute("POST", "/v1/vector_stores/{store}", collections.UPDATE_COLLECTION, update_store),
    HttpRoute("DELETE", "/v1/vector_stores/{store}", collections.DELETE_COLLECTION, delete_store),
    HttpRoute("POST", "/v1/vector_stores/{store}/search", SEARCH, search_store, query_of),
    HttpRoute("OPTIONS", "/api/v1/uploads", files.GET_FILE, describe_uploads),
    HttpRoute("POST", "/api/v1/uploads", files.CREATE_FILE, create_upload, streams=True),
    HttpRoute("HEAD", "/api/v1/uploads/{upload}", files.SEND_FILE, get_upload),
    HttpRoute("PATCH", "/api/v1/uploads/{upload}", files.SEND_FILE, continue_upload, streams=True),
    HttpRoute("DELETE", "/api/v1/uploads/{upload}", files.DELETE_FILE, delete_upload),
    HttpRoute("GET", "/documents/{document:path}", documents.GET_DOCUMENT, get_document),
)
