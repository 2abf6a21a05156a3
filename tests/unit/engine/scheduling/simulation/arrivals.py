"""Requests that arrive at a box: when, whose, and how large."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.query import Priority

_BLOCK = 4096


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request.

    Attributes:
        at_s: When it comes, seconds.
        client: Whose it is.
        priority: Its class.
        prompt_tokens: Length of the prompt.
        output_tokens: How many tokens the answer will have, which the scheduler does not know.
        max_tokens: How many it may have, which it does.
    """

    at_s: float
    client: str
    priority: Priority
    prompt_tokens: int
    output_tokens: int
    max_tokens: int


class Trace(Enum):
    """Kinds of traffic.

    STEADY: Poisson arrivals. BURSTS: the same number of requests, most of them in bursts. HEAVY: Poisson arrivals
    whose prompts and answers have heavy tails. FLOOD: Poisson arrivals of small clients, and one client that sends a
    hundred requests at once, again and again.
    """

    STEADY = "steady"
    BURSTS = "bursts"
    HEAVY = "heavy"
    FLOOD = "flood"


class Shape(Enum):
    """Sizes of requests: mean prompt, mean answer and longest answer, tokens.

    CHAT is the shape often published: prompts of 512 tokens, answers exponential with mean 128, at most 1,536. QUOTE is
    what grounded quotation asks of the model: a prompt with passages, and a handful of choices.
    """

    CHAT = (512, 128, 1536)
    QUOTE = (384, 6, 64)


def arrivals(
    trace: Trace, shape: Shape, requests: int, rate: float, clients: int, batch_share: float, seed: int
) -> Iterator[Arrival]:
    """Yields requests in order of arrival; equal arguments yield equal ones.

    Args:
        trace: Kind of traffic.
        shape: Sizes of requests.
        requests: How many.
        rate: Requests a second on average.
        clients: How many clients there are; client n sends in proportion to 1 / n.
        batch_share: Share of requests of the class ``batch``; half of the others are ``interactive``.
        seed: Chooses everything else.
    """
    random = np.random.default_rng(seed)
    weights = 1 / np.arange(1, clients + 1)
    now = 0.0
    sent = 0
    while sent < requests:
        size = min(_BLOCK, requests - sent)
        gaps, owners = _gaps(trace, random, size, rate), random.choice(clients, size, p=weights / weights.sum())
        prompts, outputs = _lengths(trace, shape, random, size)
        kinds = random.random(size)
        for n in range(size):
            now += float(gaps[n])
            client, kind = f"client {owners[n] + 1}", float(kinds[n])
            if kind < batch_share:
                priority = Priority.BATCH
            else:
                priority = Priority.INTERACTIVE if kind < (1 + batch_share) / 2 else Priority.NORMAL
            if trace is Trace.FLOOD and n % 200 < 100:
                client, priority = "flood", Priority.NORMAL
            yield Arrival(now, client, priority, int(prompts[n]), int(outputs[n]), shape.value[2])
        sent += size


def _gaps(trace: Trace, random: np.random.Generator, size: int, rate: float) -> NDArray[np.float64]:
    gaps = random.exponential(1 / rate, size)
    if trace is Trace.BURSTS:
        # Fifty requests come within what is usually the time of two, then nothing until the mean is reached again.
        place = np.arange(size) % 50
        gaps = np.where(place == 0, gaps * 48, gaps * 2 / 49)
    if trace is Trace.FLOOD:
        place = np.arange(size) % 200
        gaps = np.where(place < 100, 0.0, 2 * gaps)
    return gaps


def _lengths(
    trace: Trace, shape: Shape, random: np.random.Generator, size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    prompt, answer, longest = shape.value
    if trace is Trace.HEAVY:
        prompts = prompt * random.lognormal(-0.5, 1.0, size)
        answers = answer * 0.35 * (1 + random.pareto(1.5, size))
    else:
        prompts = random.normal(prompt, prompt / 8, size)
        answers = random.exponential(answer, size)
    return (
        np.clip(np.rint(prompts), 8, 4 * prompt).astype(np.int64),
        np.clip(np.rint(answers), 1, longest).astype(np.int64),
    )
