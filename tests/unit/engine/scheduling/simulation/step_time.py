"""How long a step takes: a linear model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edge_rag.engine.scheduling.plan import PlanEntry


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of a step, as a sum of what is in it.

    The defaults were measured with ``tests/fixtures/quoter`` on two x86-64 cores by
    ``-m tests.unit.engine.scheduling.simulation --measure``.
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
