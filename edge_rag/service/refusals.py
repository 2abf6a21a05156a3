"""Audit events of calls that are refused before they start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final

from edge_rag.core.ids import RequestId
from edge_rag.core.monitoring.event import AuditEvent, AuditEventKind
from edge_rag.core.ports import AuditSink
from edge_rag.errors import (
    EdgeRagError,
    NotReady,
    Overloaded,
    PermissionDenied,
    QuotaExceeded,
    Unauthenticated,
    UndecodableMessage,
)

_PER_CLIENT_S: Final = 10.0
"""Audit events of one client, per second on average."""

_CLIENT_BURST: Final = 50.0
"""Audit events of one client at once."""

_TOTAL_S: Final = 50.0
"""Audit events of all clients together, per second on average."""

_TOTAL_BURST: Final = 250.0
"""Audit events of all clients together at once."""

_CLIENTS: Final = 1024
"""Clients whose rates are kept; beyond that, the one with the oldest refusal is dropped."""


@dataclass(slots=True)
class _Bucket:
    tokens: float
    refilled_at: float
    omitted: int = 0

    def take(self, per_second: float, burst: float, now: float) -> bool:
        self.tokens = min(burst, self.tokens + (now - self.refilled_at) * per_second)
        self.refilled_at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


class RefusalRecorder:
    """Records an audit event of kind REFUSED for each refused call. For one event loop.

    Refusals can come by the thousand per second and must neither cost as much as calls nor displace the rest of the
    audit log. Each client's events are therefore limited by a token bucket (10 per second, bursts of 50), and those of
    all clients together by another (50 per second, bursts of 250). The limit omits events, not refusals: the number
    ``omitted`` of a client's next event counts its refusals without one, and the metric ``edge_rag_requests_total``
    counts all.
    """

    def __init__(self, audit: AuditSink, clock: Callable[[], float] = monotonic) -> None:
        self._audit = audit
        self._clock = clock
        self._total = _Bucket(_TOTAL_BURST, clock())
        self._clients: dict[str, _Bucket] = {}

    def record(self, method: str, request_id: RequestId, client: str, error: EdgeRagError) -> bool:
        """Records the refusal of a call, unless the rate limit omits it; returns whether it did.

        Args:
            client: Name of the client; its address before authentication.
        """
        now = self._clock()
        bucket = self._clients.pop(client, None) or _Bucket(_CLIENT_BURST, now)
        self._clients[client] = bucket
        if len(self._clients) > _CLIENTS:
            del self._clients[next(iter(self._clients))]
        if not (bucket.take(_PER_CLIENT_S, _CLIENT_BURST, now) and self._total.take(_TOTAL_S, _TOTAL_BURST, now)):
            bucket.omitted += 1
            return False
        numbers: dict[str, float] = {}
        if isinstance(error, Overloaded):
            numbers["retry_after_s"] = error.retry_after_s
        if bucket.omitted:
            numbers["omitted"] = bucket.omitted
            bucket.omitted = 0
        reason = f"{method}: {_reason(error)}"
        self._audit.record(AuditEvent(AuditEventKind.REFUSED, request_id, client, None, reason, numbers, now))
        return True


def _reason(error: EdgeRagError) -> str:
    match error:
        case QuotaExceeded():
            return "the client's quota is used up"
        case Overloaded():
            return "the limit of concurrent calls is reached"
        case NotReady():
            return "the daemon is starting or shutting down"
        case PermissionDenied():
            return "the client is not permitted"
        case Unauthenticated():
            return "the client is not authenticated"
        case UndecodableMessage():
            return "a message could not be decoded"
        case _:
            return "the call is refused"
