"""Embeddings in the shape of OpenAI's API, and reranking in the shape that Cohere's and Jina's clients share."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from edge_rag.errors import InvalidRequest
from edge_rag.server.http.exchange import JSON, Exchange, id_header
from edge_rag.server.http.fields import check_names, choice, parse_json, typed
from edge_rag.server.http.openai.requests import EXTENSION
from edge_rag.service.call import Call
from edge_rag.service.inference import encoding

_EMBEDDING_FIELDS: Final = frozenset({"model", "input", "encoding_format", "dimensions", "user", EXTENSION})
_INPUTS: Final = {"passage": False, "question": True}
_ENCODINGS: Final[Mapping[str, Callable[[NDArray[np.float32]], Any]]] = {
    "float": lambda vector: [float(str(number)) for number in vector],  # the shortest decimal of each float32
    "base64": lambda vector: base64.b64encode(vector.astype("<f4", copy=False).tobytes()).decode(),
}
_RERANK_FIELDS: Final = frozenset(
    {
        "model",
        "query",
        "documents",
        "top_n",
        "return_documents",
        "max_chunks_per_doc",
        "max_tokens_per_doc",
        "user",
    }
)
"""All but the first five change nothing: the whole of each document is read."""


async def embeddings(call: Call, exchange: Exchange) -> None:
    """Embeds one text or several."""
    body = parse_json(exchange.body)
    _check_fields(body, _EMBEDDING_FIELDS)
    typed(body, "model", str)
    extension = typed(body, EXTENSION, dict) or {}
    check_names(extension, frozenset({"input"}), EXTENSION)
    encode = choice(body, "encoding_format", _ENCODINGS) or _ENCODINGS["float"]
    questions = choice(extension, "input", _INPUTS, EXTENSION) or False
    texts = _inputs(body.get("input"))
    found = await encoding.embed(call, texts, questions, typed(body, "dimensions", int), field="input")
    await exchange.respond(200, await call.run(_written, found, encode), JSON, id_header(call))


async def rerank(call: Call, exchange: Exchange) -> None:
    """Orders documents by their relevance for a query."""
    body = parse_json(exchange.body)
    _check_fields(body, _RERANK_FIELDS)
    typed(body, "model", str)
    query = typed(body, "query", str)
    if query is None:
        raise InvalidRequest("query", "is missing")
    texts, most = _documents(body), typed(body, "top_n", int)
    if most is not None and most < 1:
        raise InvalidRequest("top_n", f"must be at least 1, is {most}")
    shown = bool(typed(body, "return_documents", bool))
    found = await encoding.rerank(call, query, texts, most, exchange.requests, field="documents")
    results: list[dict[str, Any]] = [
        {"index": index, "relevance_score": relevance} | ({"document": {"text": texts[index]}} if shown else {})
        for index, relevance in found.ranked
    ]
    answer = {
        "id": call.request_id,
        "model": found.model,
        "results": results,
        "usage": {"prompt_tokens": found.tokens, "total_tokens": found.tokens},
        "meta": {"tokens": {"input_tokens": found.tokens}},
    }
    await exchange.respond_json(call, answer)


def _check_fields(body: Mapping[str, Any], known: frozenset[str]) -> None:
    for name, value in body.items():
        if name not in known and value is not None:
            raise InvalidRequest(name[:256], "is not supported; leave it out")


def _inputs(value: object) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts:
        raise InvalidRequest("input", "must be a string or an array of strings")
    for index, text in enumerate(texts):
        if isinstance(text, int | list):
            field = "input" if isinstance(text, int) else f"input[{index}]"
            raise InvalidRequest(field, "is tokens of another model's vocabulary; send the text")
        if not isinstance(text, str):
            raise InvalidRequest(f"input[{index}]", "must be a string")
    return tuple(texts)


def _documents(body: Mapping[str, Any]) -> tuple[str, ...]:
    texts: list[str] = []
    for index, each in enumerate(typed(body, "documents", list) or []):
        text = each.get("text") if isinstance(each, dict) else each
        if not isinstance(text, str):
            raise InvalidRequest(f"documents[{index}]", "must be a string or an object with a string `text`")
        texts.append(text)
    return tuple(texts)


def _written(found: encoding.TextVectors, encode: Callable[[NDArray[np.float32]], Any]) -> bytes:
    """Returns embeddings as JSON; a second's work for many, so not for the event loop."""
    answer = {
        "object": "list",
        "model": found.model,
        "data": [
            {"object": "embedding", "index": index, "embedding": encode(row)} for index, row in enumerate(found.vectors)
        ],
        "usage": {"prompt_tokens": found.tokens, "total_tokens": found.tokens},
    }
    return json.dumps(answer).encode()
