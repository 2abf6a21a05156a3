"""The routes: which operation each one is."""

from __future__ import annotations

from typing import Final

from edge_rag.server.http.calls import HttpRoute
from edge_rag.server.http.documents import get_document
from edge_rag.server.http.openai.chat import chat, question_of
from edge_rag.server.http.openai.encoding import embeddings, rerank
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
from edge_rag.service import collections, documents, encoding
from edge_rag.service.ask import ASK, SEARCH

ROUTES: Final = (
    HttpRoute("GET", "/v1/models", collections.LIST_COLLECTIONS, list_models),
    HttpRoute("GET", "/v1/models/{model:path}", collections.GET_COLLECTION, get_model),
    HttpRoute("POST", "/v1/chat/completions", ASK, chat, question_of),
    HttpRoute("POST", "/v1/embeddings", encoding.EMBED_TEXTS, embeddings),
    HttpRoute("POST", "/v1/rerank", encoding.RERANK_TEXTS, rerank),
    HttpRoute("POST", "/v2/rerank", encoding.RERANK_TEXTS, rerank),
    HttpRoute("POST", "/v1/responses", ASK, create_response, response_question_of),
    HttpRoute("GET", "/v1/vector_stores", collections.LIST_COLLECTIONS, list_stores),
    HttpRoute("POST", "/v1/vector_stores", collections.CREATE_COLLECTION, create_store),
    HttpRoute("GET", "/v1/vector_stores/{store}", collections.GET_COLLECTION, get_store),
    HttpRoute("POST", "/v1/vector_stores/{store}", collections.UPDATE_COLLECTION, update_store),
    HttpRoute("DELETE", "/v1/vector_stores/{store}", collections.DELETE_COLLECTION, delete_store),
    HttpRoute("POST", "/v1/vector_stores/{store}/search", SEARCH, search_store, query_of),
    HttpRoute("GET", "/documents/{document:path}", documents.GET_DOCUMENT, get_document),
)
