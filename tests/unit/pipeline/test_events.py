from __future__ import annotations

import asyncio

import pytest

from edge_rag.core.ids import RequestId
from edge_rag.core.monitoring.event import AuditEvent, AuditEventKind
from edge_rag.core.query import AnswerMode, Priority, Query, Sampling
from edge_rag.errors import CollectionNotFound, DeadlineExceeded, Overloaded
from edge_rag.pipeline.events import StageEventRecorder
from edge_rag.pipeline.stage import Timed

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


class Trail:
    def __init__(self) -> None:
        self.decisions: list[AuditEvent] = []

    def record(self, decision: AuditEvent) -> None:
        self.decisions.append(decision)


def test_a_stage_says_how_long_a_question_waited_and_took() -> None:
    trail = Trail()
    StageEventRecorder(trail, lambda: 7.0).completed(QUERY, "reranker", Timed(None, 0.25, 1.5))
    assert trail.decisions == [
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
def test_a_question_that_gets_no_further_says_why_and_the_caller_still_hears_it(
    raised: BaseException, kind: AuditEventKind, reason: str, numbers: dict[str, float]
) -> None:
    trail = Trail()
    with pytest.raises(type(raised)) as heard:
        with StageEventRecorder(trail, lambda: 7.0).failures(QUERY, "retriever"):
            raise raised
    assert heard.value is raised
    (decision,) = trail.decisions
    assert (decision.kind, decision.numbers, decision.request_id) == (kind, numbers, "q-1")
    assert reason in decision.reason


def test_what_goes_well_says_nothing_by_itself() -> None:
    trail = Trail()
    with StageEventRecorder(trail, lambda: 7.0).failures(QUERY, "retriever"):
        pass
    assert trail.decisions == []
