"""Audit events: decisions about requests with their reasons and numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from edge_rag.core.ids import RequestId, Unrecognized
from edge_rag.core.query import Priority


class AuditEventKind(Enum):
    """The decision.

    QUEUED: accepted, waits for a slot. REFUSED: not accepted. ADMITTED: got its first slot. DEFERRED: keeps waiting;
        recorded when the reason changes, not at every step. PREEMPTED: lost its slot and pages. PAUSED: the same, until
        its client reads again. RESUMED: got a slot again. FINISHED: ended normally. CANCELLED, EXPIRED, FAILED: ended
        otherwise. STAGE_DONE: a stage before the
        generator finished; the numbers are its waiting and processing time. PLACED: generated here, elsewhere or on
        both sides. SENT: sent to another machine. HEDGED: started on the other side as well, because this one is slow.
        TAKEN_OVER: continued here. BREAKER: the circuit breaker of a machine changed; no request. THROTTLED: the share
        of slots and tokens in use changed because of heat or power; no request.
    SHED: something is shed because memory is short, or no longer; no request. CHANGED: an administrator,
        the client, changed who may do what, or which models there are.
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
    STAGE_DONE = "stage_done"
    PLACED = "placed"
    SENT = "sent"
    HEDGED = "hedged"
    TAKEN_OVER = "taken_over"
    BREAKER = "breaker"
    THROTTLED = "throttled"
    SHED = "shed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One decision.

    Attributes:
        request_id: Id of the request; None for a decision about no request.
        client: Client of the request; empty if there is none.
        priority: Scheduling class; None if there is none.
        reason: Why, a short sentence without numbers.
        numbers: The numbers behind the decision, by name; units are in the names (``_s``, ``_tokens``, ``pages_...``).
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
    """An event in the audit log.

    Attributes:
        number: 1 for the first event since the start of the daemon, then one more each; a missing number is a lost
            entry.
        at: Time of recording, UTC.
    """

    number: int
    at: datetime
    event: AuditEvent
