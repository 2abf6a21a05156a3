"""Identifier types, so that one kind of id cannot stand in for another.

What a model may be called, wherever a name is read: it is also the name of a folder.

The number of the form that a file of this program has.

What a newer daemon says and an older client has no word for.
"""

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
"""Opaque; made by the server where the client sends none."""


_REQUEST_ID: Final = re.compile(r"[!-~]{1,128}")


def is_request_id(text: str) -> bool:
    """Returns whether a client may choose this request id: 1 to 128 printable ASCII characters without spaces."""
    return _REQUEST_ID.fullmatch(text) is not None


LONGEST_MODEL_NAME: Final = 64
"""Most characters of a model's name."""

_NAME: Final = re.compile(rf"[a-z0-9][a-z0-9._-]{{0,{LONGEST_MODEL_NAME - 1}}}")


def is_model_name(text: str) -> bool:
    """Whether a model may have this name: 1 to 64 of a-z, 0-9, ``.``, ``_`` and ``-``, the first a letter or digit."""
    return _NAME.fullmatch(text) is not None


def is_newer(content: bytes, newest: int) -> bool:
    """Whether a JSON file says that it has a form that this version does not know yet.

    Args:
        content: The file; anything.
        newest: Number of the newest form this version knows.
    """
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return False
    number = document.get("format") if isinstance(document, dict) else None
    return isinstance(number, int) and number > newest


_Word = TypeVar("_Word", bound=Enum)


@dataclass(frozen=True, slots=True)
class Unrecognized:
    """A value of an enumeration that the daemon knows and this version does not. Only clients meet one.

    Attributes:
        value: What stands where a known one has its value: ``unrecognized_`` and its number in the API, or
            ``unspecified`` where the daemon says nothing, as one that is older may.
    """

    value: str


def recognized(word: _Word | Unrecognized) -> _Word:
    """Returns what is known, as everything is that this version says itself.

    Raises:
        ValueError: It was heard from a newer version.
    """
    if isinstance(word, Unrecognized):
        raise ValueError(f"{word.value} cannot be passed on")
    return word
