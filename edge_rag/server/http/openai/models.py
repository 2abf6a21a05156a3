"""Collections, and the language model alone, as models in the shape of OpenAI's API."""

from __future__ import annotations

from typing import Any, Final

from edge_rag.core.documents.collection import CollectionInfo
from edge_rag.core.limits.request_fields import parse_collection_name
from edge_rag.errors import NotFound
from edge_rag.server.http.exchange import Exchange
from edge_rag.service import collections
from edge_rag.service.ask import language_model
from edge_rag.service.call import Call

MODEL_PREFIX: Final = "edge-rag/"
"""A collection is a model of this prefix and its name."""


async def list_models(call: Call, exchange: Exchange) -> None:
    models = [_collection(info) for info in await collections.list_visible(call)]
    alone = language_model(call)
    if alone is not None:
        models.append(_model(alone))
    await exchange.respond_json(call, {"object": "list", "data": models})


async def get_model(call: Call, exchange: Exchange) -> None:
    name = exchange.path["model"]
    if name == language_model(call):
        await exchange.respond_json(call, _model(name))
        return
    await exchange.respond_json(call, _collection(await collections.get(call, collection_of(name))))


def collection_of(model: str) -> str:
    """Returns the collection that a model stands for."""
    if not model.startswith(MODEL_PREFIX):
        raise NotFound(f"model {model[:256]!r} does not exist; a collection NAME is the model {MODEL_PREFIX}NAME")
    return parse_collection_name(model.removeprefix(MODEL_PREFIX), "model")


def _collection(info: CollectionInfo) -> dict[str, Any]:
    created = 0 if info.created_at is None else int(info.created_at.timestamp())
    return _model(f"{MODEL_PREFIX}{info.name}", created)


def _model(name: str, created: int = 0) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": created, "owned_by": "edge-rag"}
