"""Texts end to end: what an encoder reads without padding.

An encoder's layers work token by token, but for attention, which is told where each text begins. So texts of any
lengths share a run, no token is computed for nothing, and what a text comes to depends on itself alone.

Putting sequences of mixed lengths into padded batches.

A sequence is padded to a width that follows from its own length alone, and shares a batch only with sequences of the
same width. So little is padding, and a sequence always meets the same shapes, whoever its neighbours are: what an
encoder computes for it can't depend on them.

The few lengths that texts are filled up to, for processors that want shapes they know beforehand.
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
    """Texts that are run together.

    Attributes:
        input_ids: int64 [tokens], the tokens of all texts, one text after the other.
        positions: int64 [tokens], each token's place in its own text.
        cumulative_sequence_lengths: int32 [texts + 1]; text s has tokens [at s, at s + 1).
    """

    input_ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    cumulative_sequence_lengths: NDArray[np.int32]

    def inputs(self) -> dict[str, NDArray[np.generic]]:
        """Returns the arrays by the names that graphs give them."""
        return {
            INPUT_IDS: self.input_ids,
            POSITIONS: self.positions,
            LENGTHS: self.cumulative_sequence_lengths,
        }


def pack_texts(texts: Sequence[Sequence[int]]) -> PackedTexts:
    """Lays the token ids of texts end to end.

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
    """Divides texts, in order, among runs.

    Args:
        lengths: Tokens of each text.
        most_tokens: Most tokens of a run; a text that is longer alone gets a run of its own.

    Returns:
        Ranges of texts, one a run, none empty; together they are all texts in order.
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


LONGEST: Final = 512
"""Longest graph, tokens. Of a text that a model could read more of, no more is read at once."""

_LENGTHS: Final = (32, 64, 128, 256, LONGEST)


def graph_lengths(longest: int) -> tuple[int, ...]:
    """Returns the lengths that a model gets graphs for, tokens, ascending; the last is the longest text it reads.

    Where each length has a graph of its own, it costs the model's weights once more, on the disk and in the processor's
    memory; each text costs what it is filled up by. Questions have 8 to 31 tokens (XQuAD, median 14), chunks at most
    162 with their headings and mostly 60 to 130. Doubling from 32 on, a text is filled up to less than twice its
    length, and there is one length for nearly every question.

    Args:
        longest: Most tokens of a text that the model reads.
    """
    last = min(longest, LONGEST)
    return (*(length for length in _LENGTHS if length < last), last)
