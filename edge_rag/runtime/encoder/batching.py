"""Batches texts for encoders: packed end to end, padded by length, and the lengths of padded and fixed graphs.

Packed: layers work on each token alone, except for attention, which receives the start of each text. So texts of any
lengths share a run without padding.

Padded: a sequence is padded to a width that follows from its own length, and shares a batch only with sequences of the
same width. So a sequence always meets the same shapes, and its result cannot depend on its neighbours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

INPUT_IDS = "input_ids"
POSITIONS = "positions"
LENGTHS = "cumulative_sequence_lengths"


@dataclass(frozen=True, slots=True, eq=False)
class PackedTexts:
    """Packed texts.

    Attributes:
        input_ids: int64 [tokens], the tokens of all texts, one text after the other.
        positions: int64 [tokens], position of each token in its text.
        cumulative_sequence_lengths: int32 [texts + 1]; text s has tokens [at s, at s + 1).
    """

    input_ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    cumulative_sequence_lengths: NDArray[np.int32]

    def inputs(self) -> dict[str, NDArray[np.generic]]:
        return {
            INPUT_IDS: self.input_ids,
            POSITIONS: self.positions,
            LENGTHS: self.cumulative_sequence_lengths,
        }


def pack_texts(texts: Sequence[Sequence[int]]) -> PackedTexts:
    """Packs the token ids of texts.

    Args:
        texts: Token ids of each text, at least one text.
    """
    ends = np.cumsum([0, *map(len, texts)])
    return PackedTexts(
        np.concatenate([np.asarray(ids, dtype=np.int64) for ids in texts]),
        np.arange(ends[-1]) - np.repeat(ends[:-1], np.diff(ends)),
        ends.astype(np.int32),
    )


def plan_packs(lengths: Sequence[int], most_tokens: int) -> list[range]:
    """Divides texts, in order, into runs.

    Args:
        most_tokens: Most tokens of a run; a longer text gets a run of its own.

    Returns:
        Ranges of texts, one for each run, none empty; together they are all texts in order.
    """
    packs: list[range] = []
    first, tokens = 0, 0
    for text, length in enumerate(lengths):
        if text > first and tokens + length > most_tokens:
            packs.append(range(first, text))
            first, tokens = text, 0
        tokens += length
    return [*packs, range(first, len(lengths))] if len(lengths) > first else packs


_FINE_STEP = 4
_COARSE_STEP = 8
_FINE_UNTIL = 64


@dataclass(frozen=True, slots=True)
class LengthBatch:
    """A padded batch."""

    rows: tuple[int, ...]
    width: int


def padded_width(length: int) -> int:
    """Returns the width that a sequence of ``length`` tokens is padded to: the next multiple of 4, above 64 of 8."""
    step = _FINE_STEP if length <= _FINE_UNTIL else _COARSE_STEP
    return -(-length // step) * step


def plan_batches(lengths: Sequence[int], batch_tokens: int) -> list[LengthBatch]:
    """Groups sequences by padded width.

    Args:
        lengths: Tokens of each sequence, at least 1.
        batch_tokens: Most padded tokens in a batch; a longer sequence gets a batch of its own.

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


LONGEST: Final = 512
"""Longest graph, tokens; longer texts are truncated, even where a model could read more."""

_LENGTHS: Final = (32, 64, 128, 256, LONGEST)


def graph_lengths(longest: int) -> tuple[int, ...]:
    """Returns the lengths of a model's graphs, tokens, ascending; the last is the longest text it reads.

    They double from 32: docs/internals/encoders.md#lengths.

    Args:
        longest: Most tokens of a text that the model reads.
    """
    last = min(longest, LONGEST)
    return (*(length for length in _LENGTHS if length < last), last)
