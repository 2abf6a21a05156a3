"""Bounds on the size of responses whose size depends on stored data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from google.protobuf.message import Message

MAX_RESPONSE_BYTES: Final = 512 << 10
"""Most bytes of a response, but for one element that alone has more."""

_FRAMING_BYTES: Final = 8
"""Tag and length of an element of a repeated field."""

_Element = TypeVar("_Element")
_Sent = TypeVar("_Sent", bound=Message)


def size_of(message: Message) -> int:
    """Returns the bytes that a message takes as an element of a repeated field."""
    return message.ByteSize() + _FRAMING_BYTES


def fitting(
    elements: Iterable[_Element], size: Callable[[_Element], int], most_bytes: int = MAX_RESPONSE_BYTES
) -> list[_Element]:
    """Returns the first elements that fit a response together, and at least one if there is any."""
    taken: list[_Element] = []
    for element in elements:
        most_bytes -= size(element)
        if taken and most_bytes < 0:
            break
        taken.append(element)
    return taken


def without_excess(messages: Iterable[_Sent], field: str, most_bytes: int = MAX_RESPONSE_BYTES) -> list[_Sent]:
    """Returns all messages; from the first one on that would not fit, they lack a field."""
    sent: list[_Sent] = []
    for message in messages:
        most_bytes -= size_of(message)
        if most_bytes < 0:
            message.ClearField(field)
        sent.append(message)
    return sent
