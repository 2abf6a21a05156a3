"""A follow-up is rewritten by the language model, as part of its request, and never in place of what was asked."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence

import pytest

from edge_rag.core.answer import FinishReason, TextDelta, Usage
from edge_rag.core.generation import CompletionRequest, Generated, GenerationEvent, GenerationFailed
from edge_rag.core.ids import RequestId
from edge_rag.core.monitoring.event import AuditEvent
from edge_rag.core.passage import Reranked, RerankRequest, RetrievalRequest, Retrieved
from edge_rag.core.query import Priority, SearchQuery, Turn, Wordings
from edge_rag.errors import EdgeRagError, GeneratorMissing, Overloaded
from edge_rag.pipeline.pipeline import Pipeline, SearchResult, StageLimits

TURNS = (Turn("How often are the bearings of P-101 greased?", "Every 2,000 hours."),)
QUESTION = "And with what are they greased?"
REWRITTEN = "With what are the bearings of P-101 greased?"
USAGE = Usage(prompt_tokens=90, generated_tokens=12)


class Handle:
    def __init__(self) -> None:
        self.cancelled = threading.Event()

    def cancel(self, reason: EdgeRagError | None = None) -> None:
        self.cancelled.set()

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass


class Model:
    """Writes a text, fails, or is never done."""

    def __init__(self, *events: GenerationEvent, refusal: EdgeRagError | None = None) -> None:
        self._events = events
        self._refusal = refusal
        self.asked: list[CompletionRequest] = []
        self.handle = Handle()
        self.begun = threading.Event()

    def complete(self, request: CompletionRequest, listener: Callable[[GenerationEvent], None]) -> Handle:
        self.asked.append(request)
        if self._refusal is not None:
            raise self._refusal
        for event in self._events:
            listener(event)
        self.begun.set()
        return self.handle


def writing(text: str, reason: FinishReason = FinishReason.STOP) -> Model:
    """Returns a model that writes a text a character at a time, more of them than a buffer of answers holds."""
    return Model(*map(TextDelta, text), Generated(reason, USAGE, 0.25, 0.5, 0.25))


class Retriever:
    def __init__(self) -> None:
        self.asked: list[RetrievalRequest] = []

    def retrieve(self, requests: Sequence[RetrievalRequest]) -> list[Retrieved | Exception]:
        self.asked += requests
        return [Retrieved((), wordings=Wordings(each.question, each.rewritten)) for each in requests]


class Unused:
    def rerank(self, requests: Sequence[RerankRequest]) -> list[Reranked]:
        raise AssertionError

    def submit(self, request: object, listener: object) -> Handle:
        raise AssertionError

    def record(self, event: AuditEvent) -> None:
        pass


def search(
    model: Model | None, turns: tuple[Turn, ...] = TURNS, deadline_s: float | None = 60.0
) -> tuple[SearchResult, Retriever]:
    retriever, unused = Retriever(), Unused()
    limits = StageLimits(8, 1, 8, 1, candidates=4, event_buffer=2)
    rewrite = None if model is None else model.complete
    deadline = None if deadline_s is None else time.monotonic() + deadline_s
    query = SearchQuery(RequestId("r"), QUESTION, "site", 3, False, "gateway", deadline, turns=turns)
    pipeline = Pipeline(retriever, unused, unused, limits, unused, rewrite=rewrite)
    try:
        return asyncio.run(pipeline.search(query)), retriever
    finally:
        pipeline.close()


def test_what_the_model_writes_is_searched_for_told_timed_and_accounted() -> None:
    model = writing(f"  {REWRITTEN}\n")
    found, retriever = search(model)

    (request,) = retriever.asked
    assert (request.question, request.rewritten, request.turns) == (QUESTION, REWRITTEN, TURNS)
    assert found.standalone_question == REWRITTEN
    assert found.rewriting == USAGE
    assert [(stage.stage, stage.queue_s, stage.compute_s) for stage in found.stages][:1] == [("rewriter", 0.25, 0.5)]


def test_the_model_is_asked_as_part_of_the_request_and_for_half_of_its_time_at_most() -> None:
    model = writing(REWRITTEN)
    asked_at = time.monotonic()
    search(model, deadline_s=8.0)

    (request,) = model.asked
    assert (request.request_id, request.client, request.priority) == ("r", "gateway", Priority.NORMAL)
    assert request.deadline is not None
    assert request.deadline - asked_at < 8.0
    assert request.sampling.temperature == 0.0


@pytest.mark.parametrize(
    "model",
    [
        writing(REWRITTEN, FinishReason.LENGTH),
        writing("With what is P-102 greased?"),
        writing("Nothing of the kind!"),
        writing(QUESTION.upper()),
        writing("One line.\nAnd they are greased."),
        writing(""),
        Model(TextDelta(REWRITTEN), GenerationFailed(Overloaded("kv cache", 1.0))),
        Model(refusal=GeneratorMissing("free")),
        Model(refusal=Overloaded("generator", 1.0)),
    ],
)
def test_without_a_whole_question_over_the_conversation_the_rules_stay_alone(model: Model) -> None:
    found, retriever = search(model)

    assert [request.rewritten for request in retriever.asked] == [None]
    assert found.standalone_question is None


def test_a_question_without_turns_and_a_box_that_goes_by_rules_ask_no_model() -> None:
    model = writing(REWRITTEN)
    found, _ = search(model, turns=())
    assert not model.asked
    assert found.rewriting is None

    found, retriever = search(None)
    assert [request.rewritten for request in retriever.asked] == [None]


def test_a_model_that_takes_too_long_is_cancelled_and_the_search_goes_on() -> None:
    model = Model()
    found, retriever = search(model, deadline_s=1.0)

    assert model.handle.cancelled.wait(30)
    assert [request.rewritten for request in retriever.asked] == [None]
    assert found.rewriting is None


def test_a_caller_that_leaves_cancels_the_rewriting() -> None:
    model = Model()

    async def leave() -> None:
        unused = Unused()
        limits = StageLimits(8, 1, 8, 1, candidates=4, event_buffer=2)
        pipeline = Pipeline(Retriever(), unused, unused, limits, unused, rewrite=model.complete)
        query = SearchQuery(RequestId("r"), QUESTION, "site", 3, False, "gateway", None, turns=TURNS)
        task = asyncio.create_task(pipeline.search(query))
        await asyncio.to_thread(model.begun.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        pipeline.close()

    asyncio.run(leave())
    assert model.handle.cancelled.wait(30)
