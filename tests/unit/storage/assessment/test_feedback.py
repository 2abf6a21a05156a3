"""Feedback: what is kept, in what order, how much, and what it goes with."""

from datetime import UTC, datetime, timedelta

import pytest

from edge_rag.core.documents.collection import CollectionSettings
from edge_rag.core.ids import RequestId
from edge_rag.core.monitoring.feedback import NewFeedback, Rating
from edge_rag.errors import CollectionNotFound, FeedbackNotFound
from edge_rag.storage.assessment import feedback
from edge_rag.storage.assessment.feedback import FeedbackStore
from tests.unit.conftest import Opener

START = datetime(2026, 3, 1, tzinfo=UTC)


class Clock:
    """A second later at every call."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


def given(number: int, rating: Rating = Rating.UP, **more: str) -> NewFeedback:
    return NewFeedback(RequestId(f"request-{number}"), rating, **more)


def store(open_directory: Opener) -> FeedbackStore:
    directory = open_directory()
    directory.collections.create("a", CollectionSettings())
    return FeedbackStore(directory.feedback._database, Clock())


def requests(kept: FeedbackStore, **page: object) -> list[str]:
    whole = {"after": None, "limit": 100, **page}
    return [each.request_id for each in kept.list(**whole)]  # type: ignore[arg-type]


def test_feedback_is_kept_as_it_was_given_and_the_newest_comes_first(open_directory: Opener) -> None:
    kept = store(open_directory)
    said = given(1, Rating.DOWN, note="the page is wrong", question="How often?", answer="Daily.", collection="a")
    first = kept.give("ada", said)
    assert first.given_at == START + timedelta(seconds=1)
    assert (first.client, first.rating, first.note, first.question) == ("ada", Rating.DOWN, said.note, said.question)
    assert (first.answer, first.collection) == (said.answer, said.collection)
    kept.give("ben", given(2))
    assert requests(kept) == ["request-2", "request-1"]
    assert kept.list(None, 100)[1] == first
    assert kept.counts() == {Rating.UP: 1, Rating.DOWN: 1}
    assert requests(kept, rating=Rating.DOWN) == ["request-1"]


def test_another_word_on_the_same_answer_replaces_the_first_but_not_that_of_another_client(
    open_directory: Opener,
) -> None:
    kept = store(open_directory)
    kept.give("ada", given(1))
    kept.give("ben", given(1))
    kept.give("ada", given(1, Rating.DOWN))
    assert [(each.client, each.rating) for each in kept.list(None, 9)] == [("ada", Rating.DOWN), ("ben", Rating.UP)]


def test_pages_meet_and_none_follows_an_unknown_id(open_directory: Opener) -> None:
    kept = store(open_directory)
    for number in range(5):
        kept.give("ada", given(number))
    first = kept.list(None, 2)
    second = kept.list(first[-1].id, 2)
    third = kept.list(second[-1].id, 2)
    assert [each.request_id for each in (*first, *second, *third)] == [f"request-{n}" for n in (4, 3, 2, 1, 0)]
    assert kept.list(third[-1].id, 2) == ()
    assert kept.list("0" * 32, 2) == ()


def test_the_oldest_makes_room_by_number_by_client_and_by_bytes(
    open_directory: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feedback, "MAX_FEEDBACK", 4)
    monkeypatch.setattr(feedback, "MAX_CLIENT_FEEDBACK", 3)
    monkeypatch.setattr(feedback, "MAX_FEEDBACK_BYTES", 100)
    kept = store(open_directory)
    for number in range(4):
        kept.give("ada", given(number))
    assert requests(kept) == ["request-3", "request-2", "request-1"]
    kept.give("ben", given(4))
    kept.give("ben", given(5))
    assert requests(kept) == ["request-5", "request-4", "request-3", "request-2"]
    kept.give("ben", given(6, note="ü" * 50))
    assert requests(kept) == ["request-6", "request-5", "request-4", "request-3"], "100 bytes fit"
    kept.give("eve", given(7, note="!"))
    assert requests(kept) == ["request-7"], "one more byte does not"


def test_a_deleted_one_is_gone(open_directory: Opener) -> None:
    kept = store(open_directory)
    first, second = (kept.give("ada", given(number)) for number in range(2))
    assert kept.delete(first.id) == first
    assert kept.list(None, 9) == (second,)
    with pytest.raises(FeedbackNotFound):
        kept.delete(first.id)


def test_feedback_goes_with_its_collection_and_survives_a_restart(open_directory: Opener) -> None:
    directory = open_directory()
    for name in ("a", "b"):
        directory.collections.create(name, CollectionSettings())
        directory.feedback.give("ada", NewFeedback(RequestId(name), Rating.UP, collection=name))
    directory.feedback.give("ada", NewFeedback(RequestId("none"), Rating.UP))
    directory.library.delete_collection("a")
    with pytest.raises(CollectionNotFound):
        directory.feedback.give("ada", NewFeedback(RequestId("late"), Rating.UP, collection="a"))
    directory.close()
    assert {each.request_id for each in open_directory().feedback.list(None, 9)} == {"b", "none"}
