"""How far a model is from what it was made from, as numbers, and how far it may be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LARGEST_DIVERGENCE = 0.1
"""Mean Kullback-Leibler divergence that is accepted, nats a token.

On tiny random models of every family, keys and values in 8 bits cost at most 0.005, and 0.053 where weights have 4 bits
and both sides round activations, each in its way. Distributions that have nothing to do with each other are whole nats
apart.
"""

LARGEST_REGRET = 3.0
"""How much less likely than its own choice the original may find the lowered model's choice at any position, nats.

On the same models 0.3, and 2.2 with weights in 4 bits.
"""


@dataclass(frozen=True, slots=True)
class Agreement:
    """What a comparison found.

    Attributes:
        positions: Positions compared.
        same_token: Share of them with the same most likely token.
        divergence: Mean Kullback-Leibler divergence from the original, nats.
        regret: The most by which the original finds the lowered model's choice less likely than its own, nats.
    """

    positions: int
    same_token: float
    divergence: float
    regret: float

    @property
    def good(self) -> bool:
        """Whether the lowered model computes what the original computes."""
        return self.divergence <= LARGEST_DIVERGENCE and self.regret <= LARGEST_REGRET


def compare(original: NDArray[np.float32], lowered: NDArray[np.float32]) -> Agreement:
    """Compares logits position by position.

    Args:
        original: float32 [n, vocabulary], n at least 1.
        lowered: The same shape. Values that are not numbers agree with nothing.
    """
    if not (np.isfinite(original).all() and np.isfinite(lowered).all()):
        return Agreement(len(original), 0.0, float("inf"), float("inf"))
    expected, found = _log_probabilities(original), _log_probabilities(lowered)
    best, chosen = expected.argmax(axis=1), found.argmax(axis=1)
    rows = np.arange(len(expected))
    return Agreement(
        positions=len(expected),
        same_token=float((best == chosen).mean()),
        divergence=float((np.exp(expected) * (expected - found)).sum(axis=1).mean()),
        regret=float((expected[rows, best] - expected[rows, chosen]).max()),
    )


LEAST_COSINE = 0.98
"""Least cosine between an embedder's vector of any text and the original's.

On 300 paragraphs, all-MiniLM-L6-v2 is at 0.998 at its furthest with 8-bit weights, and at 0.894 with 4-bit weights.
"""

LARGEST_SCORE_ERROR = 0.1
"""Root mean square by which a cross-encoder's scores may miss the original's, as a share of their spread."""


@dataclass(frozen=True, slots=True)
class VectorAgreement:
    """What a comparison of vectors found.

    Attributes:
        texts: Texts compared.
        mean_cosine: Mean cosine to the original's vectors.
        least_cosine: The least one.
    """

    texts: int
    mean_cosine: float
    least_cosine: float

    @property
    def good(self) -> bool:
        """Whether the texts mean the same to both."""
        return self.least_cosine >= LEAST_COSINE


@dataclass(frozen=True, slots=True)
class ScoreAgreement:
    """What a comparison of scores found.

    Attributes:
        pairs: Pairs compared.
        error: Root mean square of the differences, as a share of the original scores' standard deviation.
    """

    pairs: int
    error: float

    @property
    def good(self) -> bool:
        """Whether both put passages into the same order, nearly."""
        return self.error <= LARGEST_SCORE_ERROR


def compare_vectors(original: NDArray[np.float32], made: NDArray[np.float32]) -> VectorAgreement:
    """Compares vectors text by text.

    Args:
        original: float32 [n, dimension] of unit length, n at least 1.
        made: The same shape. Values that are not numbers agree with nothing.
    """
    if original.shape != made.shape or not (np.isfinite(original).all() and np.isfinite(made).all()):
        return VectorAgreement(len(original), -1.0, -1.0)
    cosines = (original.astype(np.float64) * made).sum(axis=1)
    return VectorAgreement(len(original), float(cosines.mean()), float(cosines.min()))


def compare_scores(original: NDArray[np.float32], made: NDArray[np.float32]) -> ScoreAgreement:
    """Compares scores pair by pair.

    Args:
        original: float32 [n], n at least 2.
        made: The same shape. Values that are not numbers, and originals that are all equal, agree with nothing.
    """
    spread = float(np.std(original.astype(np.float64)))
    if not (np.isfinite(original).all() and np.isfinite(made).all() and spread > 0):
        return ScoreAgreement(len(original), float("inf"))
    differences = made.astype(np.float64) - original
    return ScoreAgreement(len(original), float(np.sqrt((differences**2).mean())) / spread)


def _log_probabilities(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    values = logits.astype(np.float64)
    shifted = values - values.max(axis=1, keepdims=True)
    result: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return result
