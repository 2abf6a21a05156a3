"""The routes: which operation each one is."""

from __future__ import annotations

from typing import Final

from edge_rag.server.http.calls import HttpRoute
from edge_rag.server.http.documents import get_document
from edge_rag.server.http.openai.chat import chat, question_of
from edge_rag.server.http.openai.encoding import embeddings, rerank
from edge_rag.server.http.openai.models import get_model, list_models
from edge_rag.server.http.openai.responses import create_response, response_question_of
from edge_rag.service import collections, documents, encoding
from edge_rag.service.ask import ASK

ROUTES: Final = (
    HttpRoute("GET", "/v1/models", collections.LIST_COLLECTIONS, list_models),
    HttpRoute("GET", "/v1/models/{model:path}", collections.GET_COLLECTION, get_model),
    HttpRoute("POST", "/v1/chat/completions", ASK, chat, question_of),
    HttpRoute("POST", "/v1/embeddings", encoding.EMBED_TEXTS, embeddings),
    HttpRoute("POST", "/v1/rerank", encoding.RERANK_TEXTS, rerank),
    HttpRoute("POST", "/v2/rerank", encoding.RERANK_TEXTS, rerank),
    HttpRoute("POST", "/v1/responses", ASK, create_response, response_question_of),
    HttpRoute("GET", "/documents/{document:path}", documents.GET_DOCUMENT, get_document),
)
