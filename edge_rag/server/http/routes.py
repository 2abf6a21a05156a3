"""The routes: which operation each one is."""

from __future__ import annotations

from typing import Final

from edge_rag.server.http.api.openapi import API_ROUTES
from edge_rag.server.http.calls import AnyRoute, HttpRoute
from edge_rag.server.http.console import CONSOLE_ROUTES
from edge_rag.server.http.documents import get_document, get_original, get_page, get_page_boxes
from edge_rag.server.http.mcp import McpEndpoint
from edge_rag.server.http.openai import vector_store_files, vector_stores
from edge_rag.server.http.openai.chat import chat, question_of
from edge_rag.server.http.openai.encoding import embeddings, rerank
from edge_rag.server.http.openai.files import create_file, delete_file, get_content, get_file, list_files
from edge_rag.server.http.openai.models import get_model, list_models
from edge_rag.server.http.openai.responses import create_response, response_question_of
from edge_rag.server.http.probes import PROBES
from edge_rag.service import collections, documents, files, jobs, pages
from edge_rag.service.ask import ASK, SEARCH
from edge_rag.service.inference import encoding

_STORE: Final = "/v1/vector_stores/{store}"

ROUTES: Final[tuple[AnyRoute, ...]] = (
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
    HttpRoute("GET", "/v1/vector_stores", collections.LIST_COLLECTIONS, vector_stores.list_stores),
    HttpRoute("POST", "/v1/vector_stores", collections.CREATE_COLLECTION, vector_stores.create_store),
    HttpRoute("GET", _STORE, collections.GET_COLLECTION, vector_stores.get_store),
    HttpRoute("POST", _STORE, collections.UPDATE_COLLECTION, vector_stores.update_store),
    HttpRoute("DELETE", _STORE, collections.DELETE_COLLECTION, vector_stores.delete_store),
    HttpRoute("POST", f"{_STORE}/search", SEARCH, vector_stores.search_store, vector_stores.query_of),
    HttpRoute("POST", f"{_STORE}/files", files.ATTACH_FILES, vector_store_files.attach_file),
    HttpRoute("GET", f"{_STORE}/files", files.LIST_ATTACHED, vector_store_files.list_files),
    HttpRoute("GET", f"{_STORE}/files/{{file}}", files.GET_ATTACHED, vector_store_files.get_file),
    HttpRoute("POST", f"{_STORE}/files/{{file}}", documents.UPDATE_DOCUMENT, vector_store_files.update_file),
    HttpRoute("DELETE", f"{_STORE}/files/{{file}}", files.DETACH_FILE, vector_store_files.detach_file),
    HttpRoute("GET", f"{_STORE}/files/{{file}}/content", documents.GET_DOCUMENT, vector_store_files.get_content),
    HttpRoute("POST", f"{_STORE}/file_batches", files.ATTACH_FILES, vector_store_files.attach_batch),
    HttpRoute("GET", f"{_STORE}/file_batches/{{batch}}", files.GET_ATTACHED, vector_store_files.get_batch),
    HttpRoute("POST", f"{_STORE}/file_batches/{{batch}}/cancel", jobs.CANCEL_JOB, vector_store_files.cancel_batch),
    HttpRoute("GET", f"{_STORE}/file_batches/{{batch}}/files", files.LIST_ATTACHED, vector_store_files.list_batch),
    HttpRoute("GET", "/documents/{document}/original", pages.GET_ORIGINAL, get_original),
    HttpRoute("GET", "/documents/{document}/pages/{page}", pages.GET_PAGE, get_page),
    HttpRoute("GET", "/documents/{document}/pages/{page}/boxes", pages.GET_PAGE_BOXES, get_page_boxes),
    HttpRoute("GET", "/documents/{document:path}", documents.GET_DOCUMENT, get_document),
    McpEndpoint().route(),
    *API_ROUTES,
    *PROBES,
    *CONSOLE_ROUTES,
)
