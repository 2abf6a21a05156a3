"""Timeouts of a remote's answer: a function of the clock and of measured latencies. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Final

from edge_rag.offload.remotes.latency_model import Estimate

SAFETY: Final = 1.5
"""Factor on the predicted local time when time is reserved for the local generator."""

UNKNOWN_SHARE: Final = 0.5
"""Share of the time to the deadline that is reserved for the local generator before it was measured."""

MIN_SHARE: Final = 0.1
"""Share of the time to the deadline that a remote gets at least."""

STALL_FACTOR: Final = 10.0
"""A remote has stalled after this many mean inter-token times without a chunk."""

PRIOR_TOKENS: Final = 8
"""Weight of the predicted inter-token time, in tokens."""

MIN_HEDGE_S: Final = 0.5
"""Earliest hedge, seconds, also for a remote that is usually faster."""

FIRST_TOKEN_S: Final = 10.0
"""Longest wait for a remote's first token or vectors, connecting included, seconds. A near deadline shortens it."""

STALL_S: Final = 2.0
"""Shortest gap between two chunks that counts as a stall, seconds."""

_SLACK_S: Final = 0.2


class Action(Enum):
    """What to do about a remote."""

    WAIT = "wait"
    HEDGE = "hedge"
    TAKE_OVER = "take_over"


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Timeouts of a remote's answer.

    Attributes:
        first_token_s: Longest wait for the first token, connecting included, seconds.
        stall_s: Shortest gap between two chunks that counts as a stall, seconds.
        slow_client_s: Longest time that an answer stays paused for its client, seconds.
    """

    first_token_s: float = FIRST_TOKEN_S
    stall_s: float = STALL_S
    slow_client_s: float = 30.0


@dataclass(frozen=True, slots=True)
class StreamProgress:
    """Progress of a remote's answer. Times are seconds on one monotonic clock.

    Attributes:
        deadline: Deadline of the request, or None.
        first_chunk: When the first chunk came, or None.
        last_chunk: When the latest chunk came, or None.
    """

    now: float
    started: float
    deadline: float | None
    first_chunk: float | None
    last_chunk: float | None
    tokens: int
    remaining: int
    remote: Estimate
    local: Estimate
    may_hedge: bool


@dataclass(frozen=True, slots=True)
class Assessment:
    """Result of a check of a remote's progress.

    Attributes:
        reason: Why, unless the action is to wait.
    """

    action: Action
    reason: str
    check_at: float


def assess(progress: StreamProgress, timeouts: Timeouts) -> Assessment:
    if progress.first_chunk is None or progress.last_chunk is None:
        return _before_first_chunk(progress, timeouts)
    return _between_chunks(progress, progress.first_chunk, progress.last_chunk, timeouts)


def _before_first_chunk(progress: StreamProgress, timeouts: Timeouts) -> Assessment:
    timeout_at = progress.started + timeouts.first_token_s
    check_at = math.inf
    if progress.deadline is not None:
        latest = _latest(progress, progress.deadline)
        local_s = progress.local.finish_s
        if progress.now >= latest and local_s is not None and progress.now + local_s > progress.deadline:
            # The local generator would be late too, so a takeover gains nothing until its load falls.
            check_at = progress.now + MIN_HEDGE_S
        else:
            timeout_at = min(timeout_at, latest)
    if progress.now >= timeout_at:
        reason = f"no token came within {progress.now - progress.started:.1f} s"
        return Assessment(Action.TAKE_OVER, reason, progress.now + timeouts.stall_s)
    check_at = min(check_at, timeout_at)
    unusual = progress.remote.unusual_s
    if unusual is None:
        return Assessment(Action.WAIT, "", check_at)
    hedge_at = progress.started + max(MIN_HEDGE_S, unusual)
    if progress.now < hedge_at:
        return Assessment(Action.WAIT, "", min(hedge_at, check_at))
    if progress.may_hedge:
        return Assessment(Action.HEDGE, "the remote takes longer than usual", check_at)
    return Assessment(Action.WAIT, "", min(progress.now + MIN_HEDGE_S, check_at))


def _latest(progress: StreamProgress, deadline: float) -> float:
    """Returns when to take over before the first chunk so that the local generator still meets the deadline.

    If that leaves the remote almost no time, it gets the time within which it usually starts.
    """
    window, local_s = max(0.0, deadline - progress.started), progress.local.finish_s
    minimum = progress.started + MIN_SHARE * window
    latest = deadline - (UNKNOWN_SHARE * window if local_s is None else SAFETY * local_s)
    return latest if latest >= minimum else max(minimum, progress.started + (progress.remote.unusual_s or 0.0))


def _between_chunks(progress: StreamProgress, first: float, last: float, timeouts: Timeouts) -> Assessment:
    gap = _per_token_s(progress, last - first)
    stalled_at = last + max(timeouts.stall_s, STALL_FACTOR * gap)
    if progress.now < stalled_at and progress.deadline is not None:
        remote_s, local_s = progress.remaining * gap, _local_rest_s(progress)
        local_in_time = local_s is None or progress.now + local_s <= progress.deadline
        if progress.now + remote_s > progress.deadline and local_in_time and (local_s is None or local_s < remote_s):
            reason = "the remote generates too slowly to meet the deadline"
            return Assessment(Action.TAKE_OVER, reason, progress.now + timeouts.stall_s)
        latest = progress.deadline - (UNKNOWN_SHARE * (progress.deadline - last) if local_s is None else local_s)
        if latest > last:
            # Only the time that the local generator needs is left: an unusually long gap counts as a stall.
            stalled_at = min(stalled_at, max(latest, last + 2 * gap + _SLACK_S))
    if progress.now >= stalled_at:
        reason = f"no token came for {progress.now - last:.1f} s"
        return Assessment(Action.TAKE_OVER, reason, progress.now + timeouts.stall_s)
    return Assessment(Action.WAIT, "", stalled_at)


def _per_token_s(progress: StreamProgress, elapsed_s: float) -> float:
    """Returns the inter-token time, seconds: measured, and with few tokens mixed with the predicted one."""
    gaps, expected = progress.tokens - 1, progress.remote.per_token_s
    if expected is None:
        return elapsed_s / max(1, gaps)
    return (elapsed_s + PRIOR_TOKENS * expected) / (max(0, gaps) + PRIOR_TOKENS)


def _local_rest_s(progress: StreamProgress) -> float | None:
    """Returns the time that the local generator needs for the rest, seconds."""
    start, per_token = progress.local.first_token_s, progress.local.per_token_s
    return None if start is None or per_token is None else SAFETY * (start + progress.remaining * per_token)
