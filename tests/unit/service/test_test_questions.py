"""A run of test questions gives way to others: it has the lowest priority, one search at a time, and waits its turn."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from edge_rag.core.documents.evaluation import QuestionPage, QuestionResult, RankChange, StoredQuestion
from edge_rag.core.ids import ChunkId, DocumentId
from edge_rag.core.passage import Explanation, Hit, Passage, RankedPassage
from edge_rag.core.query import Priority, SearchQuery
from edge_rag.errors import CollectionNotFound, InvalidRequest, Overloaded
from edge_rag.pipeline.pipeline import SearchResult
from edge_rag.service.call import Call
from edge_rag.service.collections import QuestionAsked, QuestionsAsked, run_questions

PASSAGE = Passage(ChunkId(1), DocumentId("d1"), "pump.md", None, 0, 5, "Pumps")
FOUND = SearchResult(
    (RankedPassage(PASSAGE, 1.0, ()),), (), explanations=(Explanation(Hit(PASSAGE, 1.0), 1, 2.5),), relevances=(1.0,)
)
KNOWN = QuestionResult(2, None, RankChange.NEW, ())
QUESTIONS = (
    StoredQuestion("1", "Which pumps?", "pump.md", ""),
    StoredQuestion("2", "Which valves?", "valve.md", "", result=KNOWN),
)


class Box:
    """A call of a box whose searches do what they are told to."""

    def __init__(self, questions: tuple[StoredQuestion, ...] = QUESTIONS, *, writer: bool = True) -> None:
        self.searched: list[SearchQuery] = []
        self.busy = self.running = 0
        self.kept: list[tuple[Any, ...]] = []
        self.charged: list[str] = []
        store = SimpleNamespace(
            questions=lambda name: QuestionPage(questions, len(questions), None, None, None),
            keep=lambda *given: self.kept.append(given),
        )
        backend = SimpleNamespace(evaluation=store, pipeline=SimpleNamespace(search=self._search))
        call = SimpleNamespace(
            backend=backend,
            identity=SimpleNamespace(name="ward", is_a=lambda role: writer),
            request_id="r1",
            deadline=None,
            trace=None,
            check_collection=self._check,
            run=self._run,
            charged=self._charged,
        )
        self.call = cast(Call, call)

    def _check(self, name: str) -> None:
        if name != "plant":
            raise CollectionNotFound(name, None)

    async def _run(self, function: Callable[..., Any], *given: Any) -> Any:
        return function(*given)

    @asynccontextmanager
    async def _charged(self, texts: list[str]) -> AsyncIterator[None]:
        yield
        self.charged += texts

    async def _search(self, query: SearchQuery, trace: object) -> SearchResult:
        assert self.running == 0
        if self.busy:
            self.busy -= 1
            raise Overloaded("retriever", retry_after_s=0.0)
        self.searched.append(query)
        self.running += 1
        await asyncio.sleep(0)
        self.running -= 1
        return FOUND


async def run(box: Box) -> list[QuestionAsked | QuestionsAsked]:
    return [event async for event in run_questions(box.call, "plant")]


async def test_each_question_is_a_search_as_users_have_it_at_the_lowest_priority() -> None:
    box = Box()
    first, second, end = await run(box)
    assert [(query.query, query.collection, query.limit) for query in box.searched] == [
        ("Which pumps?", "plant", 10),
        ("Which valves?", "plant", 10),
    ]
    assert all(query.rerank and query.explain and query.filter is None for query in box.searched)
    assert {query.priority for query in box.searched} == {Priority.BATCH}
    assert {query.client for query in box.searched} == {"ward"}
    assert box.charged == ["Which pumps?", "Which valves?"]
    assert isinstance(first, QuestionAsked)
    assert isinstance(second, QuestionAsked)
    assert isinstance(end, QuestionsAsked)
    assert (first.done, first.total, second.done) == (1, 2, 2)
    assert first.question.result is not None
    assert (first.question.result.rank, first.question.result.change) == (1, RankChange.NEW)
    assert second.question.result is not None
    assert (second.question.result.rank, second.question.result.previous_rank) == (None, 2)
    assert second.question.result.change is RankChange.WORSE
    assert (end.run.summary.recall_at_1, end.kept) == (0.5, True)
    ((name, kept, results),) = box.kept
    assert (name, kept, set(results)) == ("plant", end.run, {"1", "2"})


async def test_a_run_waits_while_the_queue_is_full() -> None:
    box = Box()
    box.busy = 3
    assert len(await run(box)) == 3
    assert (box.busy, len(box.searched)) == (0, 2)


async def test_a_run_that_is_left_searches_no_further_and_keeps_nothing() -> None:
    box = Box()
    events = run_questions(box.call, "plant")
    await anext(events)
    await events.aclose()
    assert (len(box.searched), box.kept) == (1, [])


async def test_what_a_reader_runs_is_told_and_not_kept() -> None:
    box = Box(writer=False)
    end = (await run(box))[-1]
    assert isinstance(end, QuestionsAsked)
    assert (end.kept, box.kept) == (False, [])


async def test_a_collection_without_questions_has_nothing_to_run() -> None:
    with pytest.raises(InvalidRequest, match="has no test questions"):
        await run(Box(()))
    with pytest.raises(CollectionNotFound):
        await anext(run_questions(Box().call, "secret"))
