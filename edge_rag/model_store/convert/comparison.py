"""Numerical comparison of a converted model with its original, and the accepted differences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

MAX_DIVERGENCE = 0.1
"""Largest accepted mean Kullback-Leibler divergence, nats per token.

On tiny random models of every family, keys and values in 8 bits cause at most 0.005, and 0.053 together with weights in
4 bits where both sides round activations differently. Unrelated distributions are whole nats apart.
"""

MAX_REGRET = 3.0
"""Largest accepted regret, nats: how much less likely than its own choice the original finds the lowered model's
choice.

On the same models 0.3, and 2.2 with weights in 4 bits.
"""


MAX_LOSS = 0.02
"""Largest accepted mean Kullback-Leibler divergence of a model from its weights in float32, nats per token."""

MIN_SAME_TOKEN = 0.93
"""Least accepted share of positions at which a quantized model has the same most likely token."""


@dataclass(frozen=True, slots=True)
class LogitComparison:
    """Comparison of logits.

    Attributes:
        same_token: Share of them with the same most likely token.
    """

    positions: int
    same_token: float
    divergence: float
    regret: float

    @property
    def good(self) -> bool:
        return self.divergence <= MAX_DIVERGENCE and self.regret <= MAX_REGRET

    @property
    def passes_gate(self) -> bool:
        return self.divergence <= MAX_LOSS and self.same_token >= MIN_SAME_TOKEN


def compare(original: NDArray[np.float32], lowered: NDArray[np.float32]) -> LogitComparison:
    """Compares logits position by position.

    Args:
        original: float32 [n, vocabulary], n at least 1.
        lowered: The same shape. Values that are not finite differ from everything.
    """
    if not (np.isfinite(original).all() and np.isfinite(lowered).all()):
        return LogitComparison(len(original), 0.0, float("inf"), float("inf"))
    expected, found = _log_probabilities(original), _log_probabilities(lowered)
    best, chosen = expected.argmax(axis=1), found.argmax(axis=1)
    rows = np.arange(len(expected))
    return LogitComparison(
        positions=len(expected),
        same_token=float((best == chosen).mean()),
        divergence=float((np.exp(expected) * (expected - found)).sum(axis=1).mean()),
        regret=float((expected[rows, best] - expected[rows, chosen]).max()),
    )


def compare_texts(
    pairs: Iterable[tuple[NDArray[np.float32], NDArray[np.float32]]],
) -> LogitComparison:
    """Compares the logits of several texts, a few positions at a time.

    Args:
        pairs: Of each text the original's logits and the model's, as ``compare`` takes them.
    """
    parts = [
        compare(np.asarray(original[first : first + _POSITIONS_AT_ONCE]), lowered[first : first + _POSITIONS_AT_ONCE])
        for original, lowered in pairs
        for first in range(0, len(original), _POSITIONS_AT_ONCE)
    ]
    positions = sum(part.positions for part in parts)
    return LogitComparison(
        positions=positions,
        same_token=sum(part.same_token * part.positions for part in parts) / positions,
        divergence=sum(part.divergence * part.positions for part in parts) / positions,
        regret=max(part.regret for part in parts),
    )


_POSITIONS_AT_ONCE = 32
"""Positions whose probabilities are compared at a time; each takes some 40 bytes a token of the vocabulary."""

MIN_COSINE = 0.98
"""Least accepted cosine between an embedder's vector of a text and the original's.

On 300 paragraphs the least cosine of all-MiniLM-L6-v2 is 0.998 with 8-bit weights and 0.894 with 4-bit weights.
"""

MIN_MEAN_COSINE = 0.99
"""Least accepted mean of these cosines."""

MAX_SCORE_ERROR = 0.1
"""Largest accepted root mean square error of a cross-encoder's scores, as a share of their standard deviation."""


@dataclass(frozen=True, slots=True)
class VectorComparison:
    """Comparison of vectors.

    Attributes:
        mean_cosine: Mean cosine to the original's vectors.
        least_cosine: Least cosine to the original's vectors.
    """

    texts: int
    mean_cosine: float
    least_cosine: float

    @property
    def good(self) -> bool:
        return self.least_cosine >= MIN_COSINE and self.mean_cosine >= MIN_MEAN_COSINE


@dataclass(frozen=True, slots=True)
class ScoreComparison:
    """Comparison of scores.

    Attributes:
        error: Root mean square of the differences, as a share of the original scores' standard deviation.
    """

    pairs: int
    error: float

    @property
    def good(self) -> bool:
        return self.error <= MAX_SCORE_ERROR


def compare_vectors(original: NDArray[np.float32], made: NDArray[np.float32]) -> VectorComparison:
    """Compares vectors text by text.

    Args:
        original: float32 [n, dimension] of unit length, n at least 1.
        made: The same shape. Values that are not finite differ from everything.
    """
    if original.shape != made.shape or not (np.isfinite(original).all() and np.isfinite(made).all()):
        return VectorComparison(len(original), -1.0, -1.0)
    cosines = (original.astype(np.float64) * made).sum(axis=1)
    return VectorComparison(len(original), float(cosines.mean()), float(cosines.min()))


def compare_scores(original: NDArray[np.float32], made: NDArray[np.float32]) -> ScoreComparison:
    """Compares scores pair by pair.

    Args:
        original: float32 [n], n at least 2.
        made: The same shape. Values that are not finite, and originals that are all equal, differ from everything.
    """
    spread = float(np.std(original.astype(np.float64)))
    if not (np.isfinite(original).all() and np.isfinite(made).all() and spread > 0):
        return ScoreComparison(len(original), float("inf"))
    differences = made.astype(np.float64) - original
    return ScoreComparison(len(original), float(np.sqrt((differences**2).mean())) / spread)


_COLUMNS: Final = (
    ("bits_per_weight", "bits", ".2f"),
    ("divergence", "divergence", ".4f"),
    ("same_token", "best token", ".1%"),
    ("mean_cosine", "mean cosine", ".4f"),
    ("least_cosine", "least cosine", ".4f"),
    ("error", "score error", ".1%"),
)
"""Measures by their keys in ``forms_tried``, with heading and format."""


def forms_table(tried: Sequence[Any]) -> str:
    shown = [column for column in _COLUMNS if column[0] in tried[0]]
    lines = [f"  {'form':<36}{''.join(f'{heading:>13}' for _, heading, _ in shown)}{'gate':>8}"]
    for each in tried:
        values = "".join(f"{format(each[key], style):>13}" for key, _, style in shown)
        lines.append(f"  {each['form']:<36}{values}{'passed' if each['good'] else 'failed':>8}")
    return "\n".join(lines)


def _log_probabilities(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    values = logits.astype(np.float64)
    shifted = values - values.max(axis=1, keepdims=True)
    result: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return result
