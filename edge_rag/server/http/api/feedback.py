"""Feedback on answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from edge_rag.core.ids import RequestId
from edge_rag.core.limits.request_fields import RequestLimits, parse_text
from edge_rag.core.monitoring.feedback import Feedback, NewFeedback, Rating
from edge_rag.errors import InvalidRequest
from edge_rag.server.http.api.decode import Between, Collection, Legal
from edge_rag.server.http.api.endpoints import fitting
from edge_rag.server.http.api.operation import RequestKey
from edge_rag.service.admin import feedback
from edge_rag.service.admin.feedback import MAX_ANSWER_CHARACTERS, MAX_NOTE_CHARACTERS
from edge_rag.service.call import Call

_MOST_FEEDBACK: Final = 1000


def _text(most: int) -> Legal:
    def check(field: str, value: str) -> str:
        return parse_text(field, value, most) if value.strip() else ""

    return Legal(check, (("maxLength", most),))


def _id(field: str, value: str) -> str:
    if not (len(value) == 32 and value.isascii() and value.isalnum()):
        raise InvalidRequest(field, "must be the id of feedback, 32 hexadecimal digits")
    return value


FeedbackKey = Annotated[str, Legal(_id, (("pattern", "^[0-9a-f]{32}$"),))]
"""Id of feedback."""


@dataclass(frozen=True, slots=True)
class GiveFeedbackRequest:
    """What someone thinks of an answer.

    Attributes:
        request_id: Id of the request that was answered.
        rating: Whether the answer helped.
        note: The person's remark.
        question: The question; to be sent only if the person agrees.
        answer: The answer; to be sent only if the person agrees.
        collection: The collection that was asked; to be sent only if the person agrees.
    """

    request_id: RequestKey
    rating: Rating
    note: Annotated[str, _text(MAX_NOTE_CHARACTERS)] = ""
    question: str = ""
    answer: Annotated[str, _text(MAX_ANSWER_CHARACTERS)] = ""
    collection: Collection | None = None


@dataclass(frozen=True, slots=True)
class OneFeedback:
    """Feedback.

    Attributes:
        feedback: As it is kept.
    """

    feedback: Feedback


@dataclass(frozen=True, slots=True)
class ListFeedbackRequest:
    """A page of feedback.

    Attributes:
        after: Id of the last feedback of the page before, as ``next`` of its response; none for the first page.
        limit: Most feedback of the page.
        rating: Only feedback with this rating; none for all.
    """

    after: FeedbackKey | None = None
    limit: Annotated[int, Between(1, _MOST_FEEDBACK)] = 100
    rating: Rating | None = None


@dataclass(frozen=True, slots=True)
class FeedbackPage:
    """A page of feedback.

    Attributes:
        feedback: The newest first.
        next: Id after which the next page begins; null at the end.
        counts: The number of all feedback that is kept, by rating.
    """

    feedback: tuple[Feedback, ...]
    next: str | None
    counts: Mapping[Rating, int]


@dataclass(frozen=True, slots=True)
class FeedbackRequest:
    """Feedback.

    Attributes:
        feedback: Its id.
    """

    feedback: FeedbackKey


@dataclass(frozen=True, slots=True)
class DeletedFeedback:
    """Feedback that was deleted.

    Attributes:
        deleted: The feedback.
    """

    deleted: Feedback


async def give_feedback(call: Call, request: GiveFeedbackRequest, limits: RequestLimits) -> OneFeedback:
    """Says whether an answer helped; it replaces the caller's earlier feedback on the same request.

    It is kept on the box for its administrators, at most 10,000 times; the oldest is dropped.
    """
    question = _text(limits.question_characters).checked("question", request.question)
    new = NewFeedback(
        RequestId(request.request_id),
        request.rating,
        request.note,
        question,
        request.answer,
        request.collection or "",
    )
    return OneFeedback(await feedback.give(call, new))


async def list_feedback(call: Call, request: ListFeedbackRequest) -> FeedbackPage:
    """Lists what people think of answers, the newest first."""
    page = await feedback.list_page(call, request.after, request.limit + 1, request.rating)
    shown = fitting(page.feedback[: request.limit])
    more = len(shown) < len(page.feedback)
    return FeedbackPage(shown, shown[-1].id if more else None, page.counts)


async def delete_feedback(call: Call, request: FeedbackRequest) -> DeletedFeedback:
    """Deletes feedback."""
    return DeletedFeedback(await feedback.delete(call, request.feedback))
