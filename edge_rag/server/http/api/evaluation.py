"""How documents were cut and what of them is indexed, and test questions of collections."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Annotated, Final

from edge_rag.core.documents.document import ChunkPage, ChunkTerms
from edge_rag.core.documents.evaluation import MAX_CHARACTERS, MAX_QUESTIONS, NewQuestion, QuestionPage, StoredQuestion
from edge_rag.errors import InvalidRequest
from edge_rag.server.http.api.decode import Between, Collection, Document, Legal
from edge_rag.server.http.api.endpoints import fitting
from edge_rag.service import collections, documents
from edge_rag.service.call import Call
from edge_rag.service.collections import QuestionAsked, QuestionsAsked

_MOST_CHUNKS: Final = 200
_MOST_POSITION: Final = 1 << 53
_QUESTION_ID: Final = 20


def _question_id(field: str, value: str) -> str:
    if len(value) != _QUESTION_ID or not set(value) <= set("0123456789abcdef"):
        raise InvalidRequest(field, "must be the id of a test question, as the list of them tells it")
    return value


ChunkPosition = Annotated[int, Between(0, _MOST_POSITION)]
"""Position of a chunk in its document, from 0."""

QuestionKey = Annotated[str, Legal(_question_id, (("pattern", f"^[0-9a-f]{{{_QUESTION_ID}}}$"),))]
"""Id of a test question."""

Text = Annotated[str, Legal(lambda field, value: value, (("minLength", 1), ("maxLength", MAX_CHARACTERS)))]
"""A text whose bounds the service checks."""


@dataclass(frozen=True, slots=True)
class ListChunksRequest:
    """A page of the chunks of a document.

    Attributes:
        collection: Name of the collection.
        document: Id or name of the document.
        after: Position of the last chunk of the page before, as ``next`` of its response; none for the first page.
        limit: Most chunks of the page.
    """

    collection: Collection
    document: Document
    after: ChunkPosition | None = None
    limit: Annotated[int, Between(1, _MOST_CHUNKS)] = 100


@dataclass(frozen=True, slots=True)
class ChunkTermsRequest:
    """A chunk of a document.

    Attributes:
        collection: Name of the collection.
        position: Position of the chunk.
        document: Id or name of the document.
    """

    collection: Collection
    position: ChunkPosition
    document: Document


@dataclass(frozen=True, slots=True)
class ListQuestionsRequest:
    """A page of the test questions of a collection.

    Attributes:
        collection: Name of the collection.
        after: Id of the last question of the page before, as ``next`` of its response; none for the first page.
        limit: Most questions of the page.
    """

    collection: Collection
    after: QuestionKey | None = None
    limit: Annotated[int, Between(1, MAX_QUESTIONS)] = 100


@dataclass(frozen=True, slots=True)
class AddQuestionRequest:
    """A test question.

    Attributes:
        collection: Name of the collection.
        question: The question.
        document: Name of the document that should be found.
        text: Text that the passage should hold, regardless of case and white space; empty if any passage will do.
    """

    collection: Collection
    question: Text
    document: Document
    text: Annotated[str, Legal(lambda field, value: value, (("maxLength", MAX_CHARACTERS),))] = ""


@dataclass(frozen=True, slots=True)
class QuestionsRequest:
    """A collection whose test questions are meant.

    Attributes:
        collection: Name of the collection.
    """

    collection: Collection


@dataclass(frozen=True, slots=True)
class QuestionRequest:
    """A test question.

    Attributes:
        collection: Name of the collection.
        question: Id of the question.
    """

    collection: Collection
    question: QuestionKey


@dataclass(frozen=True, slots=True)
class AddedQuestion:
    """A test question that is there.

    Attributes:
        question: The question.
    """

    question: StoredQuestion


@dataclass(frozen=True, slots=True)
class ReplacedQuestions:
    """Test questions that took the place of others.

    Attributes:
        total: How many the collection has now.
    """

    total: int


@dataclass(frozen=True, slots=True)
class DeletedQuestion:
    """A test question that was deleted.

    Attributes:
        deleted: The question.
    """

    deleted: StoredQuestion


async def list_chunks(call: Call, request: ListChunksRequest) -> ChunkPage:
    """Lists the chunks of a document, page by page: where its text was cut, and whether the vector index has them."""
    page = await documents.list_chunks(call, request.collection, request.document, request.after, request.limit)
    sent = fitting(page.chunks)
    return page if len(sent) == len(page.chunks) else replace(page, chunks=sent, next=sent[-1].position)


async def get_chunk_terms(call: Call, request: ChunkTermsRequest) -> ChunkTerms:
    """Returns the entries of a chunk in the full text index: the terms by which it is found."""
    return await documents.chunk_terms(call, request.collection, request.document, request.position)


async def list_test_questions(call: Call, request: ListQuestionsRequest) -> QuestionPage:
    """Lists the test questions of a collection, page by page, with the result of the last run for each."""
    page = await collections.list_questions(call, request.collection, request.after or "", request.limit)
    sent = fitting(page.questions)
    return page if len(sent) == len(page.questions) else replace(page, questions=sent, next=sent[-1].question_id)


async def add_test_question(call: Call, request: AddQuestionRequest) -> AddedQuestion:
    """Adds a test question to a collection, which then exists until it is deleted; up to 1,000."""
    new = NewQuestion(request.question, request.document, request.text)
    return AddedQuestion(await collections.add_question(call, request.collection, new))


async def replace_test_questions(
    call: Call, request: QuestionsRequest, content: AsyncIterator[bytes], media_type: str
) -> ReplacedQuestions:
    """Makes the questions of a file those of a collection; those that it had already keep their results.

    The body is CSV with the columns question, document and perhaps text, or JSON lines with these fields.
    """
    return ReplacedQuestions(await collections.replace_questions(call, request.collection, content, media_type))


async def delete_test_question(call: Call, request: QuestionRequest) -> DeletedQuestion:
    """Deletes a test question with its results."""
    return DeletedQuestion(await collections.delete_question(call, request.collection, request.question))


async def run_test_questions(
    call: Call, request: QuestionsRequest
) -> AsyncGenerator[QuestionAsked | QuestionsAsked, None]:
    """Searches a collection for each of its test questions, and compares the ranks with those of the last run.

    It has the lowest priority, and ends with the connection. Searches are those of `/api/v1/search` with the reranker.
    Results are kept if the caller has the role writer.
    """
    async with aclosing(collections.run_questions(call, request.collection)) as events:
        async for event in events:
            yield event
