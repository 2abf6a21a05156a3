"""Refused calls are recorded in the audit log, at a bounded rate, and none is uncounted."""

import pytest

from edge_rag.core.ids import RequestId
from edge_rag.core.monitoring.event import AuditEvent, AuditEventKind
from edge_rag.errors import EdgeRagError, NotReady, Overloaded, PermissionDenied, QuotaExceeded, Unauthenticated
from edge_rag.service.refusals import RefusalRecorder


class Events:
    def __init__(self) -> None:
        self.events: list[AuditEvent] = []

    def record(self, event: AuditEvent) -> None:
        self.events.append(event)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def refuse(recorder: RefusalRecorder, client: str, times: int) -> None:
    for number in range(times):
        recorder.record("Ask", RequestId(f"{client}-{number}"), client, Overloaded("call", 0.5))


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Overloaded("call", 0.5), "Ask: the limit of concurrent calls is reached"),
        (QuotaExceeded("60 requests a minute", 2.0), "Ask: the client's quota is used up"),
        (NotReady("starting"), "Ask: the daemon is starting or shutting down"),
        (PermissionDenied("no"), "Ask: the client is not permitted"),
        (Unauthenticated("no"), "Ask: the client is not authenticated"),
    ],
)
def test_an_event_names_request_client_and_reason(error: EdgeRagError, reason: str) -> None:
    audit = Events()
    RefusalRecorder(audit).record("Ask", RequestId("r1"), "ada", error)
    (event,) = audit.events
    assert (event.kind, event.request_id, event.client, event.reason) == (AuditEventKind.REFUSED, "r1", "ada", reason)
    assert event.numbers == ({"retry_after_s": error.retry_after_s} if isinstance(error, Overloaded) else {})


def test_the_next_event_counts_the_omitted_ones() -> None:
    audit, clock = Events(), Clock()
    recorder = RefusalRecorder(audit, clock)
    refuse(recorder, "flood", 1000)
    assert len(audit.events) == 50
    clock.now += 0.2
    refuse(recorder, "flood", 1)
    assert audit.events[-1].numbers["omitted"] == 950
    clock.now += 0.2
    refuse(recorder, "flood", 1)
    assert "omitted" not in audit.events[-1].numbers


def test_a_flood_of_one_client_leaves_events_for_others() -> None:
    audit = Events()
    recorder = RefusalRecorder(audit, Clock())
    refuse(recorder, "flood", 1000)
    refuse(recorder, "other", 1)
    assert audit.events[-1].client == "other"


def test_many_clients_together_are_bounded_and_forgotten() -> None:
    audit, clock = Events(), Clock()
    recorder = RefusalRecorder(audit, clock)
    for number in range(5000):
        refuse(recorder, f"client {number}", 1)
    assert len(audit.events) == 250
    clock.now += 1.0
    for number in range(5000, 6000):
        refuse(recorder, f"client {number}", 1)
    assert len(audit.events) == 300
