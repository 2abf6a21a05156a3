"""What a newer daemon says and an older client has no word for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

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
