"""What people think of answers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from edge_rag.core.ids import RequestId


class Rating(Enum):
    """Whether an answer helped.

    UP: It did. DOWN: It did not.
    """

    UP = "up"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class NewFeedback:
    """What someone thinks of an answer. Question, answer and collection are empty where the person keeps them private.

    Attributes:
        rating: Whether the answer helped.
        note: What the person says; empty for nothing.
    """

    request_id: RequestId
    rating: Rating
    note: str = ""
    question: str = ""
    answer: str = ""
    collection: str = ""


@dataclass(frozen=True, slots=True)
class Feedback:
    """Feedback as it is kept.

    Attributes:
        id: Its id.
        client: Who gave it.
        given_at: When it was given last, UTC.
        request_id: Id of the request that was answered.
        rating: Whether the answer helped.
        note: What the person says; empty for nothing.
        question: The question; empty if it was not sent.
        answer: The answer; empty if it was not sent.
        collection: The collection that was asked; empty if it was not sent.
    """

    id: str
    client: str
    given_at: datetime
    request_id: RequestId
    rating: Rating
    note: str
    question: str
    answer: str
    collection: str
