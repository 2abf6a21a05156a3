"""Sampling. A request's tokens depend on its own logits and its own random stream, never on the rest of the batch.

Order of operations: constraint, repetition penalty, temperature, top-k, top-p.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.query import Sampling
from edge_rag.engine.constraint import AllowedTokens, AnyToken, Masked, OneOf
from edge_rag.errors import InferenceFailed

Logits = NDArray[np.float32]

_NUCLEUS_GUESS = 256


class TokenSampler:
    """Samples the tokens of one request; keeps its random stream and the tokens that the repetition penalty counts.

    Args:
        prompt: The first tokens that the repetition penalty counts.
    """

    def __init__(self, sampling: Sampling, vocabulary_size: int, prompt: Iterable[int]) -> None:
        self.sampling = sampling
        self._random = np.random.default_rng(sampling.seed)
        self._seen: NDArray[np.bool_] | None = None
        if sampling.repetition_penalty != 1.0:
            self._seen = np.zeros(vocabulary_size, np.bool_)
            self.observe(prompt)

    @property
    def is_greedy(self) -> bool:
        """Whether the token with the largest logit is chosen, without a penalty."""
        return self.sampling.temperature == 0 and self._seen is None

    def observe(self, tokens: Iterable[int]) -> None:
        """Counts tokens for the repetition penalty."""
        if self._seen is not None:
            self._seen[np.fromiter(tokens, np.int64)] = True

    def sample(self, logits: Logits, allowed: AllowedTokens) -> int:
        """Samples a token.

        Args:
            logits: float32 [V].

        Returns:
            A token id; among equal ones the smallest.
        """
        if isinstance(allowed, OneOf):
            seen = None if self._seen is None else self._seen[allowed.allowed]
            return int(allowed.allowed[self._draw(self._penalized(logits[allowed.allowed], seen) + allowed.bias)])
        scores = self._penalized(logits, self._seen)
        if isinstance(allowed, Masked):
            scores = np.where(allowed.allowed, scores, np.float32(-np.inf))
        return self._draw(scores)

    def _penalized(self, scores: Logits, seen: NDArray[np.bool_] | None) -> Logits:
        return scores if seen is None else penalized(scores, seen, self.sampling.repetition_penalty)

    def _draw(self, scores: Logits) -> int:
        """Returns the index of a score; of minus infinity only if all are."""
        if self.sampling.temperature == 0:
            return int(np.argmax(scores))
        mass = np.cumsum(probabilities(scores, self.sampling))
        point = min(self._random.random() * mass[-1], np.nextafter(mass[-1], 0))
        return int(np.searchsorted(mass, point, side="right"))


@dataclass(frozen=True, slots=True, eq=False)
class SampleRequest:
    """One request's part of the logits.

    Attributes:
        draft: Drafted tokens that were computed after its last one. Empty unless any token is allowed: the tokens
            allowed after a drafted one are not known.
    """

    sampler: TokenSampler
    allowed: AllowedTokens
    draft: tuple[int, ...] = ()


def sample(logits: Logits, requests: Sequence[SampleRequest]) -> list[tuple[int, ...]]:
    """Samples a token for each request, and further ones while its draft is right.

    A drafted token is accepted if and only if the request samples it anyway, with its own random stream, so answers are
    the same with and without drafts, greedy or not. (With a deterministic draft this is speculative sampling, Leviathan
    et al., 2023, section 2.3: a token is accepted with the probability that the model gives it, else drawn from the
    others.)

    Args:
        logits: float32 [R, V]; for each request the row of its last token, then one for each drafted token.

    Returns:
        For each request the accepted drafted tokens and one more.

    Raises:
        InferenceFailed: A row holds something that is not a number.
    """
    best = np.argmax(logits, axis=1).tolist()  # of a row with NaN, the first NaN
    if any(math.isnan(logits[row, token]) for row, token in enumerate(best)):
        raise InferenceFailed("the model's logits are not numbers")
    first = 0
    sampled: list[tuple[int, ...]] = []
    for request in requests:
        rows = range(first, first + len(request.draft) + 1)
        first = rows.stop
        greedy = request.sampler.is_greedy and isinstance(request.allowed, AnyToken)
        tokens: list[int] = []
        for row, drafted in zip(rows, (*request.draft, None), strict=True):
            token = best[row] if greedy else request.sampler.sample(logits[row], request.allowed)
            tokens.append(token)
            if token != drafted:
                break
            request.sampler.observe((token,))
        sampled.append(tuple(tokens))
    return sampled


def penalized(scores: Logits, seen: NDArray[np.bool_], penalty: float) -> Logits:
    """Makes seen tokens less likely (Keskar et al., CTRL, 2019, section 4.1, extended to negative logits).

    Args:
        scores: float32 [n].
        seen: bool [n].
        penalty: At least 1.

    Returns:
        float32 [n].
    """
    return np.where(seen, np.where(scores > 0, scores / penalty, scores * penalty), scores).astype(np.float32)


def probabilities(scores: Logits, sampling: Sampling) -> NDArray[np.float64]:
    """Returns the distribution to draw from.

    Args:
        scores: float32 [n].
        sampling: Temperature above 0, top-k and top-p. Of equal scores the smaller index is kept first.

    Returns:
        float64 [n], not negative, with a positive sum; 0 for tokens that top-k or top-p excludes.
    """
    wide = scores.astype(np.float64)
    weights: NDArray[np.float64] = np.exp((wide - wide.max()) / sampling.temperature)
    if sampling.top_k:
        weights = _only(weights, _largest(weights, sampling.top_k))
    if sampling.top_p < 1:
        weights = _only(weights, _nucleus(weights, sampling.top_p))
    return np.asarray(weights / weights.sum())


def _only(weights: NDArray[np.float64], kept: NDArray[np.int64]) -> NDArray[np.float64]:
    result = np.zeros_like(weights)
    result[kept] = weights[kept]
    return result


def _largest(weights: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Returns the indices of the largest weights, the largest first; without sorting the vocabulary."""
    if count >= len(weights):
        return np.argsort(-weights, kind="stable")
    candidates = np.flatnonzero(weights >= np.partition(weights, -count)[-count])
    return candidates[np.argsort(-weights[candidates], kind="stable")][:count]


def _nucleus(weights: NDArray[np.float64], share: float) -> NDArray[np.int64]:
    """Returns the indices of the nucleus: the fewest weights with that share (Holtzman et al., 2020, section 3.1)."""
    wanted, count = share * weights.sum(), _NUCLEUS_GUESS
    while True:
        order = _largest(weights, count)
        mass = np.cumsum(weights[order])
        if mass[-1] >= wanted or len(order) == len(weights):
            return order[: np.searchsorted(mass, wanted) + 1]
        count *= 8
