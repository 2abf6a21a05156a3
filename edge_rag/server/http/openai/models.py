"""Collections as models in the shape of OpenAI's API."""

from __future__ import annotations

from typing import Any, Final

from edge_rag.core.documents.collection import CollectionInfo
from edge_rag.core.limits.request_fields import parse_collection_name
from edge_rag.errors import NotFound
from edge_rag.server.http.exchange import Exchange
from edge_rag.service import collections
from edge_rag.service.call import Call

MODEL_PREFIX: Final = "edge-rag/"
"""A collection is a model of this prefix and its name."""


async def list_models(call: Call, exchange: Exchange) -> None:
    """Lists the collections that exist for the caller, as models."""
    found = await collections.list_visible(call)
    await exchange.respond_json(call, {"object": "list", "data": [_model(info) for info in found]})


async def get_model(call: Call, exchange: Exchange) -> None:
    """Returns a collection as a model."""
    await exchange.respond_json(call, _model(await collections.get(call, collection_of(exchange.path["model"]))))


def collection_of(model: str) -> str:
    """Returns the collection that a model stands for.

    Raises:
        NotFound: It stands for none.
    """
    if not model.startswith(MODEL_PREFIX):
        raise NotFound(f"model {model[:256]!r} does not exist; a collection NAME is the model {MODEL_PREFIX}NAME")
    return parse_collection_name(model.removeprefix(MODEL_PREFIX), "model")


def _model(info: CollectionInfo) -> dict[str, Any]:
    created = 0 if info.created_at is None else int(info.created_at.timestamp())
    return {"id": f"{MODEL_PREFIX}{info.name}", "object": "model", "created": created, "owned_by": "edge-rag"}
