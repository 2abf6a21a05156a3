"""Scheduling decisions as functions: numbers in, numbers out.

The operator's curve: how many sequences share a step, and how long it may get.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from edge_rag.core.query import SchedulingPreset
from edge_rag.errors import ConfigurationError

LONGEST_REST_S: Final = 0.5
"""After a step; whoever was cancelled meanwhile is let go then."""


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """How large a step may be.

    Attributes:
        max_slots: Most sequences in one step, at least 1.
        max_step_tokens: Most tokens in one step.
        prefill_tokens: Tokens of every step kept for prefill while any is pending, at least 1.

    Raises:
        ConfigurationError: A full batch of decodes and the prefill share do not fit into one step together, so that
            some of them would starve.
    """

    max_slots: int
    max_step_tokens: int
    prefill_tokens: int

    def __post_init__(self) -> None:
        if self.max_slots < 1 or self.prefill_tokens < 1:
            raise ConfigurationError("max_slots and prefill_tokens: at least 1")
        if self.max_slots + self.prefill_tokens > self.max_step_tokens:
            raise ConfigurationError(
                f"max_step_tokens: {self.max_step_tokens} cannot hold {self.max_slots} slots and a prefill share of"
                f" {self.prefill_tokens} tokens; at least {self.max_slots + self.prefill_tokens} are needed"
            )


def throttled_limits(limits: SchedulerLimits, share: float, slots: int) -> SchedulerLimits:
    """Returns smaller limits for a box that is to do less.

    Whoever has a slot already keeps decoding: there is room in a step for one token of each, whatever the share.

    Args:
        limits: Those of a box that nothing holds back.
        share: Share of slots and tokens that may be used, above 0 to 1.
        slots: Most slots for another reason; the smaller number wins.
    """
    fewer = max(1, min(slots, int(limits.max_slots * share + 1e-9)))
    prefill = max(1, int(limits.prefill_tokens * share))
    tokens = max(limits.max_slots + prefill, int(limits.max_step_tokens * share))
    return SchedulerLimits(fewer, tokens, prefill)


def pause_after_step_s(share: float, worked_s: float) -> float:
    """Returns how long to rest after a step on a box that is to do less, seconds.

    Smaller steps alone do not cool a box that is never idle: it computes as hard, and fewer at once cost more energy
    for each token. So the model also runs for no more than that share of the time.

    Args:
        share: Share that may be used, above 0 to 1.
        worked_s: How long the step took, seconds.
    """
    return min(LONGEST_REST_S, worked_s * (1 / share - 1))


def split_tokens(pending: Sequence[int], limits: SchedulerLimits) -> list[int]:
    """Divides a step's tokens: decodes first, then prefill in the order given, which keeps its share in any case.

    Args:
        pending: Tokens that each running sequence has yet to compute, at least 1, best rank first.
        limits: How large the step may be.

    Returns:
        Tokens each sequence computes in this step, 0 to its pending tokens; together at most ``max_step_tokens``.
    """
    prefill = min(sum(n for n in pending if n > 1), limits.prefill_tokens)
    left = limits.max_step_tokens
    counts = [0] * len(pending)
    for i, n in enumerate(pending):
        if n == 1 and left > prefill:
            counts[i] = 1
            left -= 1
    for i, n in enumerate(pending):
        if n > 1:
            counts[i] = min(n, left)
            left -= counts[i]
    return counts


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


_FACTOR: Final = {SchedulingPreset.LATENCY: 0.5, SchedulingPreset.BALANCED: 1.0, SchedulingPreset.THROUGHPUT: 2.0}


def limits_for(
    curve: SchedulingPreset, balanced: StepSize, max_slots: int | None = None, max_step_tokens: int | None = None
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
