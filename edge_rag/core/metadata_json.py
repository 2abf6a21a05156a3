"""Metadata as JSON: texts, numbers and truth values as they are, tags as an array, a moment as ``{"at": ISO 8601}``."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from edge_rag.core.metadata import Metadata, MetadataValue, checked_metadata


def encode_metadata(metadata: Metadata) -> str:
    """Returns metadata as JSON, keys in order, so that equal metadata are equal texts."""
    plain = {
        key: {"at": value.isoformat()} if isinstance(value, datetime) else value for key, value in metadata.items()
    }
    return json.dumps(plain, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def decode_metadata(text: str) -> dict[str, MetadataValue]:
    """Reads what ``encode_metadata`` wrote.

    Raises:
        ValueError: It is nothing that was written by it.
        InvalidRequest: A key or a value is unusable.
    """
    plain = json.loads(text)
    if not isinstance(plain, dict):
        raise ValueError("metadata is no object")
    return checked_metadata({key: _value(value) for key, value in plain.items()})


def _value(plain: Any) -> object:
    if isinstance(plain, dict):
        return datetime.fromisoformat(str(plain.get("at")))
    return plain
