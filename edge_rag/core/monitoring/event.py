"""Decisions about requests as values: what was decided about whom, why, and on which numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from edge_rag.core.ids import RequestId, Unrecognized
from edge_rag.core.query import Priority


class AuditEventKind(Enum):
    """What was decided.

    QUEUED: taken in, waits for a slot. REFUSED: not taken in. ADMITTED: got its first slot. DEFERRED: stays waiting;
    said when the reason changes, not at every step. PREEMPTED: gave its slot and pages up. PAUSED: the same, for as
    long as its reader does not keep up. RESUMED: got a slot again. FINISHED: ended well. CANCELLED, EXPIRED, FAILED:
    ended otherwise. SLOTS_CHANGED: the controller moved the slot limit; about no request. STAGE_DONE: a stage before
    the generator is done with it; its numbers say how long it waited there and how long it took. PLACED:
    written here, elsewhere or on both sides. SENT: to which machine, and what. HEDGED: begun on the other side as
    well, since this one is slow. TAKEN_OVER: gone on with here. BREAKER: whether a machine is asked has changed; about
    no request. THROTTLED: the share of slots and tokens that may be used moved, down or back, because of heat or
    power; about no request. SHED: something is given up while memory is short, or no longer; about no request.
    PREFETCHED: its likely prompt was computed before it came, while nothing else was to do.
    """

    QUEUED = "queued"
    REFUSED = "refused"
    ADMITTED = "admitted"
    DEFERRED = "deferred"
    PREEMPTED = "preempted"
    PAUSED = "paused"
    RESUMED = "resumed"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    FAILED = "failed"
    SLOTS_CHANGED = "slots_changed"
    STAGE_DONE = "stage_done"
    PLACED = "placed"
    SENT = "sent"
    HEDGED = "hedged"
    TAKEN_OVER = "taken_over"
    BREAKER = "breaker"
    THROTTLED = "throttled"
    SHED = "shed"
    PREFETCHED = "prefetched"


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One decision.

    Attributes:
        kind: What was decided.
        request_id: About whom; None for a decision about no request.
        client: Whose request; empty where there is none.
        priority: Its class; None where there is none.
        reason: Why, as a short sentence without numbers.
        numbers: The numbers it was decided on, by name; units are in the names (``_s``, ``_tokens``, ``pages_...``).
        at_s: ``time.monotonic()`` seconds.
        preempted_for: For PREEMPTED, the request that needed the slot or the pages; None otherwise.
    """

    kind: AuditEventKind | Unrecognized
    request_id: RequestId | None
    client: str
    priority: Priority | None
    reason: str
    numbers: Mapping[str, float]
    at_s: float
    preempted_for: RequestId | None = None


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A decision in the audit trail.

    Attributes:
        number: 1 for the first since the daemon was started, and one more for each that followed; where a number is
            missing, an entry was lost.
        at: When it was recorded, UTC.
        decision: The decision.
    """

    number: int
    at: datetime
    decision: AuditEvent
