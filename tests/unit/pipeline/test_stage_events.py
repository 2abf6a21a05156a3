import asyncio

import pytest

from edge_rag.core.ids import RequestId
from edge_rag.core.monitoring.event import AuditEvent, AuditEventKind
from edge_rag.core.query import AnswerMode, Priority, Query, Sampling
from edge_rag.errors import CollectionNotFound, DeadlineExceeded, Overloaded
from edge_rag.pipeline.stage import StageEventRecorder, Timed

QUERY = Query(
    request_id=RequestId("q-1"),
    question="how often?",
    collection="default",
    mode=AnswerMode.QUOTE,
    max_sentences=1,
    passages=4,
    sampling=Sampling(),
    priority=Priority.NORMAL,
    client="alice",
    deadline=None,
)


class Audit:
    def __init__(self) -> None:
        self.events: list[AuditEvent] = []

    def record(self, event: AuditEvent) -> None:
        self.events.append(event)


def test_a_completed_stage_is_recorded_with_its_times() -> None:
    audit = Audit()
    StageEventRecorder(audit, lambda: 7.0).completed(QUERY, "reranker", Timed(None, 0.25, 1.5))
    assert audit.events == [
        AuditEvent(
            AuditEventKind.STAGE_DONE,
            RequestId("q-1"),
            "alice",
            Priority.NORMAL,
            "the reranker is done",
            {"queue_s": 0.25, "compute_s": 1.5},
            7.0,
        )
    ]


@pytest.mark.parametrize(
    ("raised", "kind", "reason", "numbers"),
    [
        (Overloaded("retriever", 2.5), AuditEventKind.REFUSED, "the retriever's queue is full", {"retry_after_s": 2.5}),
        (DeadlineExceeded("retriever"), AuditEventKind.EXPIRED, "its deadline passed in the retriever", {}),
        (asyncio.CancelledError(), AuditEventKind.CANCELLED, "the caller cancelled it in the retriever", {}),
        (
            CollectionNotFound("nowhere", ()),
            AuditEventKind.FAILED,
            "it failed in the retriever: CollectionNotFound",
            {},
        ),
    ],
    ids=lambda value: value.value if isinstance(value, AuditEventKind) else "",
)
def test_a_question_that_ends_in_a_stage_is_recorded_and_its_error_still_raised(
    raised: BaseException, kind: AuditEventKind, reason: str, numbers: dict[str, float]
) -> None:
    audit = Audit()
    with pytest.raises(type(raised)) as reraised:
        with StageEventRecorder(audit, lambda: 7.0).failures(QUERY, "retriever"):
            raise raised
    assert reraised.value is raised
    (event,) = audit.events
    assert (event.kind, event.numbers, event.request_id) == (kind, numbers, "q-1")
    assert reason in event.reason


def test_success_alone_records_nothing() -> None:
    audit = Audit()
    with StageEventRecorder(audit, lambda: 7.0).failures(QUERY, "retriever"):
        pass
    assert audit.events == []
