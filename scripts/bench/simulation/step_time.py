"""How long a step takes: a linear model, and its coefficients as measured with a real decoder."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.query import Priority
from edge_rag.engine.kv_cache.prefix_cache import PageId
from edge_rag.engine.model_input import pack
from edge_rag.engine.scheduling.plan import PlanEntry, StepPlan
from edge_rag.engine.sequence import Sequence, SequenceId
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of a step, as a sum of what is in it.

    The defaults were measured with ``tests/fixtures/quoter`` on two x86-64 cores by
    ``-m scripts.bench.simulation --measure``.

    Attributes:
        base_s: Each step.
        decode_s: Each sequence that computes one token.
        prefill_token_s: Each token of a part of more than one.
        context_s: Each pair of a token and a token it attends to.
    """

    base_s: float
    decode_s: float
    prefill_token_s: float
    context_s: float

    def of(self, entries: tuple[PlanEntry, ...]) -> float:
        """Returns the time of a step, seconds."""
        return float(np.dot(_terms(entries), (self.base_s, self.decode_s, self.prefill_token_s, self.context_s)))

    def alone(self, prompt_tokens: int, output_tokens: int, max_step_tokens: int) -> float:
        """Returns how long a request takes that has the box to itself and finds nothing in the cache, seconds."""
        chunks = -(-prompt_tokens // max_step_tokens)
        decodes = output_tokens - 1
        attended = prompt_tokens**2 / 2 + decodes * (prompt_tokens + output_tokens / 2)
        steps = chunks + decodes
        return (
            steps * self.base_s
            + decodes * self.decode_s
            + prompt_tokens * self.prefill_token_s
            + attended * self.context_s
        )


def _terms(entries: tuple[PlanEntry, ...]) -> tuple[float, float, float, float]:
    decodes = prefill = 0
    attended = 0.0
    for entry in entries:
        count = entry.count
        attended += count * (entry.first + (count + 1) / 2)
        if count == 1:
            decodes += 1
        else:
            prefill += count
    return 1.0, decodes, prefill, attended


def measure(folder: Path, repetitions: int = 5, seed: int = 0) -> tuple[StepTime, float]:
    """Fits the model to steps of a real decoder.

    Args:
        folder: Model folder.
        repetitions: Runs of each step, of which the median counts.
        seed: Chooses the steps.

    Returns:
        The coefficients, and the mean error of a step as a share of its time.
    """
    decoder = PagedDecoder.open(folder, 512)
    random = np.random.default_rng(seed)
    longest = min(decoder.max_context, 512 * decoder.page_tokens // 16) - 1
    rows: list[tuple[float, float, float, float]] = []
    times: list[float] = []
    for number in range(60):
        decodes = int(random.integers(0, 13))
        chunk = int(random.integers(2, 257)) if number % 2 or not decodes else 0
        parts = [(int(random.integers(0, longest)), 1) for _ in range(decodes)]
        parts += [(int(random.integers(0, longest - chunk)), chunk)] if chunk else []
        entries = tuple(PlanEntry(SequenceId(n + 1), first, count, True) for n, (first, count) in enumerate(parts))
        rows.append(_terms(entries))
        times.append(_time(decoder, entries, repetitions))
    matrix, target = np.array(rows), np.array(times)
    fitted = _non_negative(matrix / target[:, None], np.ones(len(times)))
    error = float(np.abs(matrix @ fitted / target - 1).mean())
    return StepTime(*(float(value) for value in fitted)), error


def _time(decoder: PagedDecoder, entries: tuple[PlanEntry, ...], repetitions: int) -> float:
    """Runs a step a few times; returns its median time in seconds. What the pages hold does not matter to it."""
    sequences, tables, page = {}, {}, 0
    for entry in entries:
        last = entry.first + entry.count
        sequences[entry.sequence] = Sequence(
            entry.sequence, Priority.NORMAL, "d", [3] * last, 1, client="c", arrived=0.0, deadline=None
        )
        pages = -(-last // decoder.page_tokens)
        tables[entry.sequence] = tuple(PageId(n % decoder.pages) for n in range(page, page + pages))
        page += pages
    step = pack(StepPlan(entries), sequences, tables, decoder.page_tokens)
    times = []
    for _ in range(repetitions):
        began = time.perf_counter()
        decoder.run(step)
        times.append(time.perf_counter() - began)
    return float(np.median(times))


def _non_negative(matrix: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the least-squares solution without the columns that would come out negative; those get 0."""
    used = list(range(matrix.shape[1]))
    while True:
        solution = np.linalg.lstsq(matrix[:, used], target, rcond=None)[0]
        if (solution >= 0).all():
            break
        del used[int(np.argmin(solution))]
    full = np.zeros(matrix.shape[1])
    full[used] = solution
    return full
