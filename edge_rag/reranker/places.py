"""Keeps the first items of one order near the top of another one; pure."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeVar

_Item = TypeVar("_Item", bound=Hashable)


def with_places(order: Sequence[_Item], kept: Sequence[_Item], every: int) -> list[_Item]:
    """Returns distinct items in their order, except that the r-th of ``kept`` ranks ``every * r`` or better."""
    placed: dict[_Item, None] = {}
    rest = iter(order)
    while len(placed) < len(order):
        due, early = divmod(len(placed) + 1, every)
        if not early and due <= len(kept) and kept[due - 1] not in placed:
            placed[kept[due - 1]] = None
        else:
            placed[next(item for item in rest if item not in placed)] = None
    return list(placed)


def falling(scores: Sequence[float]) -> list[float]:
    """Returns the scores of items in their order: each at least the next, so one that was moved up has the next's."""
    raised: list[float] = []
    for score in reversed(scores):
        raised.append(max(score, raised[-1]) if raised else score)
    return raised[::-1]
