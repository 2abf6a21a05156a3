"""Requests with random prompts, and what their run takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Job:
    """One request of a trace."""

    prompt: tuple[int, ...]
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Run:
    """A trace that was run; all requests arrived at time 0.

    Attributes:
        seconds: From the first arrival to the last token.
        first_token_s: float64 [requests], time to first token.
        completion_s: float64 [requests], time to the last token.
        occupancy: Busy slots by usable slots, averaged over the steps at which requests were waiting; 1 if none were.
        output_tokens: Tokens generated.
        outputs: Generated tokens of each request.
    """

    seconds: float
    first_token_s: NDArray[np.float64]
    completion_s: NDArray[np.float64]
    occupancy: float
    output_tokens: int
    outputs: tuple[tuple[int, ...], ...]

    @property
    def tokens_per_second(self) -> float:
        return self.output_tokens / self.seconds


def length_sampler(variance: str, mean: int, longest: int, rng: np.random.Generator) -> int:
    """Draws an output length.

    ``high`` is the published shape: exponential with the given mean, capped. ``medium`` is uniform over half to one and
    a half times the mean; ``low`` is the mean itself.
    """
    if variance == "high":
        length = rng.exponential(mean)
    elif variance == "medium":
        length = rng.uniform(0.5 * mean, 1.5 * mean)
    else:
        length = mean
    return int(np.clip(round(length), 1, longest))


def make_trace(
    requests: int, prompt_tokens: int, variance: str, mean: int, longest: int, vocabulary: int, seed: int
) -> tuple[Job, ...]:
    """Makes a trace of requests with random prompts; equal arguments give equal traces."""
    rng = np.random.default_rng(seed)
    return tuple(
        Job(
            tuple(int(token) for token in rng.integers(3, vocabulary, prompt_tokens)),
            length_sampler(variance, mean, longest, rng),
        )
        for _ in range(requests)
    )
