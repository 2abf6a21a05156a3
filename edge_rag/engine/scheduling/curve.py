"""The operator's curve: how many sequences share a step, and how long it may get."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from edge_rag.core.curve import Curve
from edge_rag.engine.scheduling.policy import SchedulerLimits


@dataclass(frozen=True, slots=True)
class StepSize:
    """How large a step is where nothing else is said.

    Attributes:
        slots: Sequences that run at once, at least 1.
        tokens: Tokens computed in one step.
        prefill_share: Share of a step beside the decodes that prompts keep, (0, 1).
    """

    slots: int
    tokens: int
    prefill_share: float


_FACTOR: Final = {Curve.LATENCY: 0.5, Curve.BALANCED: 1.0, Curve.THROUGHPUT: 2.0}


def limits_on(
    curve: Curve, balanced: StepSize, max_slots: int | None = None, max_step_tokens: int | None = None
) -> SchedulerLimits:
    """Places the limits of a step on the curve.

    More slots serve more requests for one reading of the weights, and each of them slower. More tokens a step let
    prompts through sooner, and make whoever decodes beside them wait longer. So both move together.

    Args:
        curve: Where on it.
        balanced: The point in the middle.
        max_slots: Slots, whatever the curve says; None follows it.
        max_step_tokens: Tokens a step, whatever the curve says; None follows it.

    Raises:
        ConfigurationError: So many slots and a prefill share do not fit into a step.
    """
    slots = max_slots or max(1, int(balanced.slots * _FACTOR[curve]))
    tokens = max_step_tokens or int(balanced.tokens * _FACTOR[curve])
    return SchedulerLimits(slots, tokens, max(1, int((tokens - slots) * balanced.prefill_share)))
