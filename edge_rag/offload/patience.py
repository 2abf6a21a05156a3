"""How long a remote is waited for: a function of the clock and of what was measured. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from edge_rag.offload.meter import Outlook

SAFETY: Final = 1.5
"""What this box needs is taken to last so many times as long, when time is kept for it."""

UNKNOWN_SHARE: Final = 0.5
"""Share of the time to the deadline that is kept for this box where nothing was measured."""

LEAST_SHARE: Final = 0.1
"""Share of the time to the deadline that a remote gets in any case."""

STALLS: Final = 10.0
"""It stalls once it says nothing for so many times as long as between its words so far."""

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
    remote: Outlook
    local: Outlook
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
    patience = bounds.first_text_s
    if progress.deadline is not None:
        window = max(0.0, progress.deadline - progress.started)
        here = progress.local.finish_s
        kept = UNKNOWN_SHARE * window if here is None else SAFETY * here
        patience = min(patience, max(LEAST_SHARE * window, window - kept))
    give_up_at = progress.started + patience
    if progress.now >= give_up_at:
        return Look(Step.TAKE_OVER, "it said nothing in the time it had", progress.now + bounds.stall_s)
    unusual = progress.remote.unusual_s
    if unusual is None:
        return Look(Step.WAIT, "", give_up_at)
    hedge_at = progress.started + max(SOONEST_HEDGE_S, unusual)
    if progress.now < hedge_at:
        return Look(Step.WAIT, "", min(hedge_at, give_up_at))
    if progress.may_hedge:
        return Look(Step.HEDGE, "it takes longer than it mostly does", give_up_at)
    return Look(Step.WAIT, "", min(progress.now + SOONEST_HEDGE_S, give_up_at))


def _in_the_middle(progress: Progress, first: float, last: float, bounds: Bounds) -> Look:
    gap = (last - first) / max(1, progress.said - 1)
    silent_at = last + max(bounds.stall_s, STALLS * gap)
    if progress.deadline is not None:
        rest = progress.left * gap
        here = _rest_here(progress)
        latest = progress.deadline - (here if here is not None else UNKNOWN_SHARE * (progress.deadline - last))
        if progress.now >= silent_at:
            return Look(Step.TAKE_OVER, "it stopped speaking", progress.now + bounds.stall_s)
        remote_is_late = progress.now + rest > progress.deadline
        if remote_is_late and (here is None or here < rest):
            return Look(Step.TAKE_OVER, "it speaks too slowly to be in time", progress.now + bounds.stall_s)
        # With the time this box would need left, a remote that has been silent for longer than usual is not waited for.
        silent_at = min(silent_at, max(latest, last + 2 * gap + _LITTLE_S))
    if progress.now >= silent_at:
        return Look(Step.TAKE_OVER, "it stopped speaking", progress.now + bounds.stall_s)
    return Look(Step.WAIT, "", silent_at)


def _rest_here(progress: Progress) -> float | None:
    """Returns the time this box would need for the rest, seconds."""
    start, pace = progress.local.first_text_s, progress.local.per_token_s
    return None if start is None or pace is None else SAFETY * (start + progress.left * pace)
