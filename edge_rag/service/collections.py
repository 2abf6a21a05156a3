"""Collections, their vector indexes and their test questions."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from edge_rag.core.documents.collection import BackendKind, CollectionInfo, CollectionSettings
from edge_rag.core.documents.evaluation import (
    DEPTH,
    KEPT_HITS,
    MAX_UPLOAD_BYTES,
    EvaluationRun,
    NewQuestion,
    QuestionPage,
    QuestionResult,
    StoredQuestion,
    compared,
    first_expected,
    hit_of,
    is_expected,
    parse_questions,
    summarized,
)
from edge_rag.core.identity import Role
from edge_rag.core.limits.request_fields import MAX_NAME_CHARACTERS, name_of_title
from edge_rag.core.monitoring.status import IndexInUse
from edge_rag.core.query import Priority, SearchQuery
from edge_rag.errors import CollectionExists, InvalidRequest, Overloaded
from edge_rag.pipeline.pipeline import SearchResult
from edge_rag.service.ask import search
from edge_rag.service.call import Call, Operation

CREATE_COLLECTION: Final = Operation("CreateCollection", Role.ADMIN)
GET_COLLECTION: Final = Operation("GetCollection", Role.READER)
LIST_COLLECTIONS: Final = Operation("ListCollections", Role.READER)
UPDATE_COLLECTION: Final = Operation("UpdateCollection", Role.ADMIN)
DELETE_COLLECTION: Final = Operation("DeleteCollection", Role.ADMIN)
MOVE_INDEX: Final = Operation("MoveIndex", Role.ADMIN, long=True)
LIST_QUESTIONS: Final = Operation("ListTestQuestions", Role.READER)
CHANGE_QUESTIONS: Final = Operation("ChangeTestQuestions", Role.WRITER)
RUN_QUESTIONS: Final = Operation("RunTestQuestions", Role.READER, long=True)


async def create(call: Call, name: str, settings: CollectionSettings) -> CollectionInfo:
    call.check_collection(name)
    return await call.run(call.backend.collections.create, name, settings)


async def create_titled(call: Call, settings: CollectionSettings) -> CollectionInfo:
    """Creates an empty collection with a title, whose name resembles it; the title itself where that is a legal name.

    A name that is not the title gets random digits where it is taken or empty.
    """
    name, digits = name_of_title(settings.title), secrets.token_hex(6)
    if name and name == settings.title:
        return await create(call, name, replace(settings, title=""))
    if name:
        try:
            return await create(call, name, settings)
        except CollectionExists:
            name = f"{name[: MAX_NAME_CHARACTERS - len(digits) - 1]}-{digits}"
    return await create(call, name or f"collection-{digits}", settings)


async def get(call: Call, name: str) -> CollectionInfo:
    call.check_collection(name)
    return await call.run(call.backend.collections.get, name)


async def list_visible(call: Call) -> tuple[CollectionInfo, ...]:
    """Returns the collections that exist for the caller, by name."""
    found = await call.run(call.backend.collections.list)
    return tuple(info for info in found if call.identity.can_see(info.name))


async def update(call: Call, name: str, changes: dict[str, Any]) -> CollectionInfo:
    call.check_collection(name)
    return await call.run(call.backend.collections.update, name, changes)


async def delete(call: Call, name: str) -> CollectionInfo:
    """Removes a collection and its contents; durable on return."""
    call.check_collection(name)
    return await call.run(call.backend.library.delete_collection, name)


async def move_index(call: Call, name: str, backend: BackendKind) -> IndexInUse:
    """Moves a collection's vectors to another index backend while searches continue; returns the new index.

    The move completes even if the caller disconnects.
    """
    return await asyncio.shield(asyncio.to_thread(call.backend.library.move_index, name, backend))


async def list_questions(call: Call, name: str, after: str, limit: int) -> QuestionPage:
    """Returns a page of the test questions of a collection, with the results of the last run that was kept.

    Args:
        after: Id of the question after which the page begins; empty for the first page.
    """
    call.check_collection(name)
    return await call.run(call.backend.evaluation.questions, name, after, limit)


async def add_question(call: Call, name: str, question: NewQuestion) -> StoredQuestion:
    """Adds a test question; returns the one that is there if it is."""
    call.check_collection(name)
    return await call.run(call.backend.evaluation.add, name, question.checked())


async def replace_questions(call: Call, name: str, content: AsyncIterable[bytes], media_type: str) -> int:
    """Makes the questions of a file (``evaluation.parse_questions``) those of a collection; returns how many they are.

    Questions that are in the file and in the collection stay with their results.
    """
    call.check_collection(name)
    file = bytearray()
    async for piece in content:
        file += piece
        if len(file) > MAX_UPLOAD_BYTES:
            raise InvalidRequest("body", f"has more than {MAX_UPLOAD_BYTES:,} bytes")
    questions = await call.run(parse_questions, bytes(file), media_type)
    return await call.run(call.backend.evaluation.replace, name, questions)


async def delete_question(call: Call, name: str, question_id: str) -> StoredQuestion:
    call.check_collection(name)
    return await call.run(call.backend.evaluation.delete, name, question_id)


@dataclass(frozen=True, slots=True)
class QuestionAsked:
    """A test question was asked.

    Attributes:
        done: How many were asked so far.
        total: How many there are.
        question: The question with its result, compared with the last run that was kept.
    """

    done: int
    total: int
    question: StoredQuestion


@dataclass(frozen=True, slots=True)
class QuestionsAsked:
    """All test questions were asked.

    Attributes:
        run: The run.
        previous: The run that it was compared with; null if there was none.
        kept: Whether its results are kept, which those of a caller with the role writer are.
    """

    run: EvaluationRun
    previous: EvaluationRun | None
    kept: bool


async def run_questions(call: Call, name: str) -> AsyncGenerator[QuestionAsked | QuestionsAsked, None]:
    """Searches a collection for each of its test questions as users do, one after the other.

    Other questions go first. The caller is charged for each search. Only a complete run is kept.

    Yields:
        Each question as soon as it was asked, and the run at the end.
    """
    call.check_collection(name)
    started = datetime.now(UTC)
    page = await call.run(call.backend.evaluation.questions, name)
    if not page.questions:
        raise InvalidRequest("collection", f"{name!r} has no test questions; add some first")
    results: dict[str, QuestionResult] = {}
    for done, question in enumerate(page.questions, 1):
        found = await _search_when_idle(call, name, question)
        result = results[question.question_id] = _result_of(question, found)
        yield QuestionAsked(done, page.total, replace(question, result=result))
    summary = summarized([result.rank for result in results.values()])
    run = EvaluationRun(started, datetime.now(UTC), summary)
    kept = call.identity.is_a(Role.WRITER)
    if kept:
        await call.run(call.backend.evaluation.keep, name, run, results)
    yield QuestionsAsked(run, page.run, kept)


async def _search_when_idle(call: Call, name: str, question: StoredQuestion) -> SearchResult:
    """Searches at the lowest priority; waits as long as a queue is full."""
    query = SearchQuery(
        request_id=call.request_id,
        query=question.question,
        collection=name,
        limit=DEPTH,
        rerank=True,
        client=call.identity.name,
        deadline=call.deadline,
        explain=True,
        priority=Priority.BATCH,
    )
    while True:
        try:
            return await search(call, query)
        except Overloaded as error:
            await asyncio.sleep(error.retry_after_s)


def _result_of(question: StoredQuestion, found: SearchResult) -> QuestionResult:
    """Returns what a search found for a question; what its last result says is that of the run before."""
    before = question.result
    rank = first_expected(is_expected(question, each) for each in found.passages)
    previous = None if before is None else before.rank
    hits = [hit_of(question, *each) for each in zip(found.passages, found.explanations, strict=True)]
    change = compared(rank, previous, asked_before=before is not None)
    return QuestionResult(rank, previous, change, tuple(hits[:KEPT_HITS]))
