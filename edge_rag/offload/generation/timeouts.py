"""How long a remote is waited for: a function of the clock and of what was measured. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Final

from edge_rag.offload.remotes.latency_model import Estimate

SAFETY: Final = 1.5
"""What this box needs is taken to last so many times as long, when time is kept for it."""

UNKNOWN_SHARE: Final = 0.5
"""Share of the time to the deadline that is kept for this box where nothing was measured."""

LEAST_SHARE: Final = 0.1
"""Share of the time to the deadline that a remote gets in any case."""

STALLS: Final = 10.0
"""It stalls once it says nothing for so many times as long as between its words so far."""

EXPECTED_TOKENS: Final = 8
"""What was expected of a remote's pace counts as much as so many of its tokens."""

SOONEST_HEDGE_S: Final = 0.5
"""However quick a remote mostly is, it is not taken for slow before, seconds."""

_LITTLE_S: Final = 0.2


class Step(Enum):
    """What to do about a remote."""

    WAIT = "wait"
    HEDGE = "hedge"
    TAKE_OVER = "take_over"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The operator's bounds.

    Attributes:
        first_text_s: Longest wait for the first text, connecting included, seconds.
        stall_s: Shortest silence in the middle of an answer that counts as a stall, seconds.
        unread_s: Longest time that an answer waits for its reader, seconds.
    """

    first_text_s: float = 10.0
    stall_s: float = 2.0
    unread_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a remote's answer is. Times are on one monotonic clock, seconds.

    Attributes:
        now: The time.
        started: When it was asked.
        deadline: The request's, or None.
        first_text: When the first text came, or None.
        last_text: When the latest came, or None.
        said: Tokens so far.
        left: Tokens that are still expected.
        remote: What was expected of the remote.
        local: What is expected here, of an answer begun now.
        may_hedge: Whether it can be begun here as well: it has not been, and a slot is free.
    """

    now: float
    started: float
    deadline: float | None
    first_text: float | None
    last_text: float | None
    said: int
    left: int
    remote: Estimate
    local: Estimate
    may_hedge: bool


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at a remote found.

    Attributes:
        step: What to do.
        reason: Why, where it is not to wait.
        again_at: When to look again, on the clock of the progress; always later than now.
    """

    step: Step
    reason: str
    again_at: float


def look(progress: Progress, bounds: Bounds) -> Look:
    """Decides whether a remote is waited for."""
    if progress.first_text is None or progress.last_text is None:
        return _before_the_first_text(progress, bounds)
    return _in_the_middle(progress, progress.first_text, progress.last_text, bounds)


def _before_the_first_text(progress: Progress, bounds: Bounds) -> Look:
    give_up_at = progress.started + bounds.first_text_s
    again_at = math.inf
    if progress.deadline is not None:
        latest = _latest(progress, progress.deadline)
        here = progress.local.finish_s
        if progress.now >= latest and here is not None and progress.now + here > progress.deadline:
            # This box would be late, so nothing is gained by leaving the remote; until there is less to do here.
            again_at = progress.now + SOONEST_HEDGE_S
        else:
            give_up_at = min(give_up_at, latest)
    if progress.now >= give_up_at:
        return Look(Step.TAKE_OVER, "it said nothing in the time it had", progress.now + bounds.stall_s)
    again_at = min(again_at, give_up_at)
    unusual = progress.remote.unusual_s
    if unusual is None:
        return Look(Step.WAIT, "", again_at)
    hedge_at = progress.started + max(SOONEST_HEDGE_S, unusual)
    if progress.now < hedge_at:
        return Look(Step.WAIT, "", min(hedge_at, again_at))
    if progress.may_hedge:
        return Look(Step.HEDGE, "it takes longer than it mostly does", again_at)
    return Look(Step.WAIT, "", min(progress.now + SOONEST_HEDGE_S, again_at))


def _latest(progress: Progress, deadline: float) -> float:
    """Returns the time until which a silent remote is waited for: what this box needs is kept for it.

    Where that leaves the remote next to nothing, it gets the time within which it mostly begins.
    """
    window, here = max(0.0, deadline - progress.started), progress.local.finish_s
    least = progress.started + LEAST_SHARE * window
    latest = deadline - (UNKNOWN_SHARE * window if here is None else SAFETY * here)
    return latest if latest >= least else max(least, progress.started + (progress.remote.unusual_s or 0.0))


def _in_the_middle(progress: Progress, first: float, last: float, bounds: Bounds) -> Look:
    gap = _pace(progress, last - first)
    silent_at = last + max(bounds.stall_s, STALLS * gap)
    if progress.now < silent_at and progress.deadline is not None:
        rest, here = progress.left * gap, _rest_here(progress)
        in_time_here = here is None or progress.now + here <= progress.deadline
        if progress.now + rest > progress.deadline and in_time_here and (here is None or here < rest):
            return Look(Step.TAKE_OVER, "it speaks too slowly to be in time", progress.now + bounds.stall_s)
        latest = progress.deadline - (UNKNOWN_SHARE * (progress.deadline - last) if here is None else here)
        if latest > last:
            # With the time this box would need left, a remote that is silent for longer than usual is not waited for.
            silent_at = min(silent_at, max(latest, last + 2 * gap + _LITTLE_S))
    if progress.now >= silent_at:
        return Look(Step.TAKE_OVER, "it stopped speaking", progress.now + bounds.stall_s)
    return Look(Step.WAIT, "", silent_at)


def _pace(progress: Progress, took_s: float) -> float:
    """Returns the time between two tokens, seconds: what was seen, and while that is little, what was expected."""
    seen, expected = progress.said - 1, progress.remote.per_token_s
    if expected is None:
        return took_s / max(1, seen)
    return (took_s + EXPECTED_TOKENS * expected) / (max(0, seen) + EXPECTED_TOKENS)


def _rest_here(progress: Progress) -> float | None:
    """Returns the time this box would need for the rest, seconds."""
    start, pace = progress.local.first_text_s, progress.local.per_token_s
    return None if start is None or pace is None else SAFETY * (start + progress.left * pace)
