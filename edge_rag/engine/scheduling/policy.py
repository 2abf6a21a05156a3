"""Scheduling policy as pure functions: limits of a step, token split, victims of preemption, presets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from edge_rag.core.query import SchedulingPreset
from edge_rag.engine.sequence import Sequence as TokenSequence
from edge_rag.errors import ConfigurationError

MAX_PAUSE_S: Final = 0.5
"""Longest pause after a step, seconds; cancellations take effect after it."""


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """Size of a step.

    Attributes:
        max_slots: Most sequences in one step, at least 1.
        max_step_tokens: Most tokens in one step.
        prefill_tokens: Tokens of every step reserved for prefill while any is pending, at least 1.
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


def throttled_limits(limits: SchedulerLimits, share: float) -> SchedulerLimits:
    """Returns the limits under throttling.

    Running sequences keep decoding: a step has room for one token of each slot at any share.

    Args:
        share: Share of slots and tokens to use, above 0 to 1.
    """
    fewer = max(1, int(limits.max_slots * share + 1e-9))
    prefill = max(1, int(limits.prefill_tokens * share))
    tokens = max(limits.max_slots + prefill, int(limits.max_step_tokens * share))
    return SchedulerLimits(fewer, tokens, prefill)


def pause_after_step_s(share: float, worked_s: float) -> float:
    """Returns how long to pause after a step under throttling, seconds.

    Smaller steps alone do not cool a busy machine: it computes as hard, and smaller batches cost more energy per token.
    So the model also runs for no more than that share of the time.

    Args:
        share: Share of the time to use, above 0 to 1.
    """
    return min(MAX_PAUSE_S, worked_s * (1 / share - 1))


BESIDE_DECODE: Final = 8
"""While another client decodes, prompts of clients with several slots have the reserved tokens divided by this."""


def split_tokens(pending: Sequence[int], limits: SchedulerLimits, owners: Sequence[tuple[int, str]] = ()) -> list[int]:
    """Divides a step's tokens: decodes first, then prefills, for which ``prefill_tokens`` are kept.

    Prefills of a higher class come first; in a class, clients have equal shares (max-min fairness), and a client's own
    prefills go in the given order. A step takes as long as all of its tokens, so that long prompts slow all decodes
    beside them: of a client with several slots they get few tokens while another client decodes.

    Args:
        pending: Pending tokens of each running sequence, at least 1, best rank first.
        owners: Class and client of each sequence; empty if all have the same.

    Returns:
        Tokens each sequence computes in this step, 0 to its pending tokens; together at most ``max_step_tokens``.
    """
    owners = owners or [(0, "")] * len(pending)
    reserved = min(sum(n for n in pending if n > 1), limits.prefill_tokens)
    left = limits.max_step_tokens
    counts = [0] * len(pending)
    for i, n in enumerate(pending):
        if n == 1 and left > reserved:
            counts[i] = 1
            left -= 1
    wanted: dict[tuple[int, str], int] = {}
    for owner, n in zip(owners, pending, strict=True):
        if n > 1:
            wanted[owner] = wanted.get(owner, 0) + n
    slots = Counter(client for _, client in owners)
    decoding = {client for (_, client), n in zip(owners, pending, strict=True) if n == 1}
    beside = max(1, limits.prefill_tokens // BESIDE_DECODE)
    for owner in wanted:
        if slots[owner[1]] > 1 and decoding - {owner[1]}:
            wanted[owner] = min(wanted[owner], beside)
    granted = _shares(wanted, left)
    for i, (owner, n) in enumerate(zip(owners, pending, strict=True)):
        if n > 1:
            counts[i] = min(n, granted[owner])
            granted[owner] -= counts[i]
    return counts


def _shares(wanted: Mapping[tuple[int, str], int], tokens: int) -> dict[tuple[int, str], int]:
    """Returns the tokens of each client: by class, then max-min fair."""
    granted: dict[tuple[int, str], int] = {}
    for level in sorted({level for level, _ in wanted}):
        members = sorted((owner for owner in wanted if owner[0] == level), key=lambda owner: wanted[owner])
        for place, owner in enumerate(members):
            granted[owner] = min(wanted[owner], -(-tokens // (len(members) - place)))
            tokens -= granted[owner]
    return granted


def displaceable(running: Sequence[TokenSequence], sequence: TokenSequence) -> list[TokenSequence]:
    return [each for each in running if each.level > sequence.priority]


def with_several(running: Sequence[TokenSequence], sequence: TokenSequence) -> TokenSequence | None:
    """Returns the running sequence that makes room for one of a client without a slot, or None.

    It is the worst-ranked one of the client with most slots, at least two, and not of a higher class. Each client keeps
    a slot, so sequences do not displace each other in turn.
    """
    slots = Counter(each.client for each in running)
    if not running or slots[sequence.client]:
        return None
    most = max(slots.values())
    candidates = [each for each in running if slots[each.client] == most > 1 and each.level >= sequence.priority]
    return candidates[-1] if candidates else None


def choose_victim(running: Sequence[TokenSequence]) -> TokenSequence:
    """Returns the running sequence to preempt, given in order of rank, at least one: the worst rank."""
    return running[-1]


@dataclass(frozen=True, slots=True)
class StepSize:
    """Default size of a step.

    Attributes:
        slots: Sequences that run at once, at least 1.
        prefill_share: Share of a step's tokens beyond the decodes that is reserved for prefill, (0, 1).
    """

    slots: int
    tokens: int
    prefill_share: float


_FACTOR: Final = {SchedulingPreset.LATENCY: 0.5, SchedulingPreset.BALANCED: 1.0, SchedulingPreset.THROUGHPUT: 2.0}


def limits_for(
    preset: SchedulingPreset, balanced: StepSize, max_slots: int | None = None, max_step_tokens: int | None = None
) -> SchedulerLimits:
    """Returns the limits of a preset.

    More slots serve more requests for one read of the weights, each of them slower. More tokens a step shorten prefill
    and lengthen the time between tokens of the sequences that decode beside it. So both are scaled together.

    Args:
        max_slots: Slots; None for the preset's.
        max_step_tokens: Tokens a step; None for the preset's.
    """
    slots = max_slots or max(1, int(balanced.slots * _FACTOR[preset]))
    tokens = max_step_tokens or int(balanced.tokens * _FACTOR[preset])
    return SchedulerLimits(slots, tokens, max(1, int((tokens - slots) * balanced.prefill_share)))
