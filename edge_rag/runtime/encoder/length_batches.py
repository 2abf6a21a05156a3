"""Putting sequences of mixed lengths into padded batches.

A sequence is padded to a width that follows from its own length alone, and shares a batch only with sequences of the
same width. So little is padding, and a sequence always meets the same shapes, whoever its neighbours are: what an
encoder computes for it can't depend on them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

_FINE_STEP = 4
_COARSE_STEP = 8
_FINE_UNTIL = 64


@dataclass(frozen=True, slots=True)
class LengthBatch:
    """Sequences that are run together.

    Attributes:
        rows: Their positions in the list that was given.
        width: Tokens each is padded to.
    """

    rows: tuple[int, ...]
    width: int


def padded_width(length: int) -> int:
    """Returns how many tokens a sequence of ``length`` tokens is padded to: the next multiple of 4, past 64 of 8."""
    step = _FINE_STEP if length <= _FINE_UNTIL else _COARSE_STEP
    return -(-length // step) * step


def plan_batches(lengths: Sequence[int], batch_tokens: int) -> list[LengthBatch]:
    """Groups sequences by padded width.

    Args:
        lengths: Tokens of each sequence, at least 1.
        batch_tokens: Most padded tokens in a batch; a sequence that is longer alone gets a batch of its own.

    Returns:
        Batches, shortest first; every sequence is in exactly one.
    """
    by_width: defaultdict[int, list[int]] = defaultdict(list)
    for row, length in enumerate(lengths):
        by_width[padded_width(length)].append(row)
    batches: list[LengthBatch] = []
    for width, rows in sorted(by_width.items()):
        size = max(1, batch_tokens // width)
        batches.extend(LengthBatch(tuple(rows[first : first + size]), width) for first in range(0, len(rows), size))
    return batches
