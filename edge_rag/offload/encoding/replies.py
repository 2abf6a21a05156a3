"""What other machines computed, checked for what can be checked of it. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edge_rag.errors import RemoteFailed

NORM_TOLERANCE: Final = 1e-3
"""How far the length of a vector may be from 1."""

LEAST_COSINE: Final = 0.999
"""How alike a remote's vector must be to the one computed here of the same text. One model gives the same bits on all
machines; the tolerance is for processors whose last digits differ."""


@dataclass(frozen=True, slots=True, eq=False)
class Embedded:
    """Vectors as a remote sent them.

    Attributes:
        data: float32, little endian, one vector after the other; not checked.
        queue_s: How long they waited there, as stated, seconds.
        compute_s: How long they were worked on there, as stated, seconds.
    """

    data: bytes
    queue_s: float
    compute_s: float


@dataclass(frozen=True, slots=True)
class Rank:
    """A passage's rank as a remote sent it; not checked.

    Attributes:
        passage: 0-based position among those that were sent.
        score: Larger is better.
        evidence: Of each of its sentences.
    """

    passage: int
    score: float
    evidence: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Ranks:
    """Ranks as a remote sent them; not checked.

    Attributes:
        ranked: Best first.
        evidence: How much speaks for an answer being among them.
        queue_s: How long it waited there, as stated, seconds.
        compute_s: How long it was worked on there, as stated, seconds.
    """

    ranked: tuple[Rank, ...]
    evidence: float
    queue_s: float
    compute_s: float


def checked_vectors(data: bytes, texts: int, dimension: int) -> NDArray[np.float32]:
    """Returns vectors, float32 [texts, dimension], each of length 1.

    Raises:
        RemoteFailed: They are too few or too many, no numbers, or of other lengths.
    """
    if len(data) != 4 * texts * dimension:
        raise RemoteFailed(f"{len(data)} bytes came for {texts} vectors of {dimension} numbers")
    vectors = np.frombuffer(data, dtype="<f4").reshape(texts, dimension).astype(np.float32)
    if not np.isfinite(vectors).all():
        raise RemoteFailed("a vector holds what is no number")
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1)
    if texts and np.abs(lengths - 1.0).max() > NORM_TOLERANCE:
        raise RemoteFailed("a vector is not of length 1")
    return vectors


def agree(one: NDArray[np.float32], other: NDArray[np.float32]) -> bool:
    """Whether two vectors of length 1 are of the same text and model."""
    return float(one @ other) >= LEAST_COSINE


def checked_ranks(ranks: Ranks, sentences: Sequence[int], limit: int) -> Ranks:
    """Returns ranks that can be ranks of what was sent.

    Args:
        ranks: As they came.
        sentences: Number of sentences of each passage that was sent.
        limit: Most passages that were asked for.

    Raises:
        RemoteFailed: Too many or too few passages, one twice or unknown, not best first, or numbers that are none.
    """
    if len(ranks.ranked) != min(limit, len(sentences)):
        raise RemoteFailed(f"{len(ranks.ranked)} passages came of {len(sentences)}, {limit} at most were asked for")
    seen: set[int] = set()
    before = math.inf
    for rank in ranks.ranked:
        if not 0 <= rank.passage < len(sentences) or rank.passage in seen:
            raise RemoteFailed("it ranked a passage twice, or one that it was not sent")
        if len(rank.evidence) != sentences[rank.passage]:
            raise RemoteFailed("it cut a passage into other sentences")
        if not math.isfinite(rank.score) or not all(map(math.isfinite, rank.evidence)):
            raise RemoteFailed("a score is no number")
        if rank.score > before:
            raise RemoteFailed("its passages are not best first")
        seen.add(rank.passage)
        before = rank.score
    if not 0.0 <= ranks.evidence <= 1.0:
        raise RemoteFailed("its evidence is not between 0 and 1")
    return ranks
