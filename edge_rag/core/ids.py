"""Types of identifiers, model names, file format versions, and unrecognized enum values."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import Enum
from typing import Final, NewType, TypeVar

DocumentId = NewType("DocumentId", str)
"""Opaque, URL-safe, unique across collections."""

ChunkId = NewType("ChunkId", int)
"""Positive 63-bit integer, never reused; the FAISS id and the SQLite row id."""

RequestId = NewType("RequestId", str)
"""Opaque; created by the server if the client sends none."""


_REQUEST_ID: Final = re.compile(r"[!-~]{1,128}")


def is_request_id(text: str) -> bool:
    """Returns whether a client may choose this request id: 1 to 128 printable ASCII characters without spaces."""
    return _REQUEST_ID.fullmatch(text) is not None


MAX_MODEL_NAME: Final = 64
"""Most characters of a model's name, which is also the name of a folder."""

_NAME: Final = re.compile(rf"[a-z0-9][a-z0-9._-]{{0,{MAX_MODEL_NAME - 1}}}")


def is_model_name(text: str) -> bool:
    """Whether a text is a valid model name: 1 to 64 of a-z, 0-9, ``.``, ``_`` and ``-``, the first a letter or
    digit.
    """
    return _NAME.fullmatch(text) is not None


def is_newer(content: bytes, newest: int) -> bool:
    """Whether a JSON file has a format version that this version of edge-rag does not know."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return False
    number = document.get("format") if isinstance(document, dict) else None
    return isinstance(number, int) and number > newest


_EnumT = TypeVar("_EnumT", bound=Enum)


@dataclass(frozen=True, slots=True)
class Unrecognized:
    """An enum value of a newer daemon that this version does not know. Only clients receive it.

    Attributes:
        value: ``unrecognized_`` and the number in the API, or ``unspecified`` if the daemon sends none.
    """

    value: str


def require_recognized(value_: _EnumT | Unrecognized) -> _EnumT:
    """Returns a value that is not ``Unrecognized``."""
    if isinstance(value_, Unrecognized):
        raise ValueError(f"{value_.value} is not a value that this version can send")
    return value_
