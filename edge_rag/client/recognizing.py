"""Enumerations of the API, some of whose values a client may be too old, or too new, to know."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from edge_rag.core.ids import Unrecognized

_Number = TypeVar("_Number", bound=int)
_Word = TypeVar("_Word", bound=Enum)


def read_word(known: Mapping[_Number, _Word], number: _Number) -> _Word | Unrecognized:
    """Returns what a number of an enumeration stands for.

    Args:
        known: What this version knows.
        number: The number that came; 0 where the daemon said nothing.
    """
    if number in known:
        return known[number]
    return Unrecognized(f"unrecognized_{number}" if number else "unspecified")
