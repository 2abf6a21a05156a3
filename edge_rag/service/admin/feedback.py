"""Feedback on answers: readers give it, administrators read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from edge_rag.core.identity import Role
from edge_rag.core.monitoring.feedback import Feedback, NewFeedback, Rating
from edge_rag.service.admin.audit import record_change
from edge_rag.service.call import Call, Operation

GIVE_FEEDBACK: Final = Operation("GiveFeedback", Role.READER)
LIST_FEEDBACK: Final = Operation("ListFeedback", Role.ADMIN)
DELETE_FEEDBACK: Final = Operation("DeleteFeedback", Role.ADMIN)

MAX_NOTE_CHARACTERS: Final = 2_000
"""Most characters of a note."""

MAX_ANSWER_CHARACTERS: Final = 32_768
"""Most characters of an answer that is sent with feedback."""


@dataclass(frozen=True, slots=True)
class FeedbackPage:
    """A page of feedback.

    Attributes:
        feedback: The newest first.
        counts: The number of all feedback that is kept, by rating.
    """

    feedback: tuple[Feedback, ...]
    counts: Mapping[Rating, int]


async def give(call: Call, new: NewFeedback) -> Feedback:
    """Stores the caller's rating of an answer; replaces the previous one."""
    if new.collection:
        call.check_collection(new.collection)
    return await call.run(call.backend.feedback.give, call.identity.name, new)


async def list_page(call: Call, after: str | None, limit: int, rating: Rating | None) -> FeedbackPage:
    """Returns feedback, the newest first; see ``FeedbackStore.list``."""
    page = await call.run(call.backend.feedback.list, after, limit, rating)
    return FeedbackPage(page, await call.run(call.backend.feedback.counts))


async def delete(call: Call, feedback_id: str) -> Feedback:
    """Deletes feedback; returns it."""
    deleted = await call.run(call.backend.feedback.delete, feedback_id)
    record_change(call, "feedback was deleted")
    return deleted
