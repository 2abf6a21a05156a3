"""Scheduling decisions as functions: numbers in, numbers out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edge_rag.errors import ConfigurationError


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


def allot(pending: Sequence[int], limits: SchedulerLimits) -> list[int]:
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
