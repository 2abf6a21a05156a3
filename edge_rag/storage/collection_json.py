"""A collection's settings as they are stored: JSON with what differs from the defaults."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

from edge_rag.core.documents.collection import CollectionSettings, FusionWeights, RecencyBoost, ValueBoost
from edge_rag.core.documents.metadata_json import decode_metadata, encode_metadata
from edge_rag.core.kv_reuse import KvReuse
from edge_rag.core.offload import OffloadRule
from edge_rag.errors import StorageCorrupt


def encode_settings(settings: CollectionSettings) -> str:
    """Returns settings as JSON."""
    boosts = [
        {"key": boost.key, "value": encode_metadata({"value": boost.value}), "factor": boost.factor}
        for boost in settings.boosts
    ]
    values = {"offload": settings.offload.value, "kv_reuse": settings.kv_reuse.value}
    given = {**asdict(replace(settings, boosts=())), "boosts": boosts, **values}
    usual = CollectionSettings()
    defaults = {**asdict(usual), "offload": usual.offload.value, "kv_reuse": usual.kv_reuse.value}
    return json.dumps({key: value for key, value in given.items() if value != defaults[key] and value != []})


def decode_settings(text: str) -> CollectionSettings:
    """Reads what ``encode_settings`` wrote.

    Raises:
        StorageCorrupt: It is not what was written.
    """
    try:
        stored: dict[str, Any] = json.loads(text)
        parts: dict[str, Any] = {}
        if "fusion" in stored:
            parts["fusion"] = FusionWeights(**stored["fusion"])
        if "recency" in stored:
            parts["recency"] = RecencyBoost(**stored["recency"])
        if "offload" in stored:
            parts["offload"] = OffloadRule(stored["offload"])
        if "boosts" in stored:
            parts["boosts"] = tuple(
                ValueBoost(each["key"], _single(each["value"]), each["factor"]) for each in stored["boosts"]
            )
        if "kv_reuse" in stored:
            parts["kv_reuse"] = KvReuse(stored["kv_reuse"])
        return CollectionSettings(**{**stored, **parts})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StorageCorrupt(f"the stored settings of a collection are damaged ({error})") from error


def _single(text: str) -> Any:
    return decode_metadata(text)["value"]
