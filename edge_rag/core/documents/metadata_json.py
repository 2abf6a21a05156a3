"""Metadata as JSON: texts, numbers and truth values as they are, tags as an array, a moment as ``{"at": ISO 8601}``."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from edge_rag.core.documents.metadata import Metadata, MetadataValue


def encode_metadata(metadata: Metadata) -> str:
    """Returns metadata as JSON, keys in order, so that equal metadata are equal texts."""
    plain = {
        key: {"at": value.isoformat()} if isinstance(value, datetime) else value for key, value in metadata.items()
    }
    return json.dumps(plain, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def decode_metadata(text: str) -> dict[str, MetadataValue]:
    """Reads what ``encode_metadata`` wrote; whether keys and values are legal is not checked, only their types.

    Raises:
        ValueError: It is nothing that was written by it.
    """
    plain = json.loads(text)
    if not isinstance(plain, dict):
        raise ValueError("metadata is no object")
    return {key: _value(value) for key, value in plain.items()}


def _value(plain: Any) -> MetadataValue:
    match plain:
        case bool() | str():
            return plain
        case int() | float():
            return float(plain)
        case list() if all(isinstance(text, str) for text in plain):
            return tuple(plain)
        case {"at": str(moment)}:
            return datetime.fromisoformat(moment)
        case _:
            raise ValueError("a metadata value is of no known type")
