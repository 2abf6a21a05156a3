"""Test questions as they are stored: in order, bounded, compared with the run before, gone with their collection."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from edge_rag.bootstrap.open_directory import OpenDirectory
from edge_rag.core.documents.collection import CollectionSettings
from edge_rag.core.documents.document import Upload
from edge_rag.core.documents.evaluation import (
    MAX_QUESTIONS,
    EvaluationHit,
    EvaluationRun,
    NewQuestion,
    QuestionResult,
    RankChange,
    StoredQuestion,
    summarized,
)
from edge_rag.core.ids import DocumentId
from edge_rag.errors import CollectionNotFound, InvalidRequest, QuestionNotFound
from tests.unit.retriever.hashed_words import HashedWords

BEARINGS = NewQuestion("How often are the bearings greased?", "pump.md", "2,000 hours")
VALVE = NewQuestion("When does the valve open?", "valve.md")
STARTED = datetime(2026, 11, 23, 9, tzinfo=UTC)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[OpenDirectory]:
    directory = OpenDirectory(tmp_path / "data", HashedWords())
    directory.library.ingest(Upload.of_bytes("plant", "pump.md", "", b"The bearings are greased every 2,000 hours."))
    yield directory
    directory.close()


def questions(opened: OpenDirectory) -> tuple[StoredQuestion, ...]:
    return opened.evaluation.questions("plant").questions


def hit_in(opened: OpenDirectory) -> EvaluationHit:
    (info,) = opened.documents.list("plant", None, 1)
    return EvaluationHit(info.document_id, info.name, None, 0, 43, True, 1, 0.5, None, None, 0.1, 1.0, 1, 3.5)


def keep(opened: OpenDirectory, ranks: dict[str, int | None], hits: tuple[EvaluationHit, ...] = ()) -> EvaluationRun:
    run = EvaluationRun(STARTED, STARTED + timedelta(seconds=2), summarized(list(ranks.values())))
    results = {key: QuestionResult(rank, None, RankChange.NEW, hits) for key, rank in ranks.items()}
    opened.evaluation.keep("plant", run, results)
    return run


def test_questions_are_listed_in_pages_in_the_order_of_their_arrival(opened: OpenDirectory) -> None:
    store = opened.evaluation
    assert store.questions("plant").total == 0
    added = store.add("plant", BEARINGS)
    assert store.replace("plant", [BEARINGS, VALVE, NewQuestion("Who?", "crew.md")]) == 3
    page = store.questions("plant", limit=2)
    assert [(each.question, each.document, each.text, each.exists) for each in page.questions] == [
        (BEARINGS.question, "pump.md", "2,000 hours", True),
        (VALVE.question, "valve.md", "", False),
    ]
    assert page.questions[0].question_id == added.question_id
    assert (page.total, page.next) == (3, page.questions[-1].question_id)
    rest = store.questions("plant", page.next or "", 2)
    assert ([each.question for each in rest.questions], rest.next) == (["Who?"], None)


def test_a_question_that_is_there_is_not_added_again(opened: OpenDirectory) -> None:
    first, again = (opened.evaluation.add("plant", BEARINGS) for _ in range(2))
    assert first == again == questions(opened)[0]


def test_a_collection_has_a_bounded_number_of_questions(opened: OpenDirectory) -> None:
    opened.evaluation.replace("plant", [NewQuestion(f"Question {each}?", "pump.md") for each in range(MAX_QUESTIONS)])
    with pytest.raises(InvalidRequest, match="one more than the 1,000"):
        opened.evaluation.add("plant", BEARINGS)
    assert len(questions(opened)) == MAX_QUESTIONS


def test_a_run_is_compared_with_the_one_before(opened: OpenDirectory) -> None:
    opened.evaluation.replace("plant", [BEARINGS, VALVE])
    bearings, valve = (each.question_id for each in questions(opened))
    first = keep(opened, {bearings: 2})
    assert [each.result for each in questions(opened)] == [QuestionResult(2, None, RankChange.NEW, ()), None]
    second = keep(opened, {bearings: None, valve: 1}, (hit_in(opened),))
    page = opened.evaluation.questions("plant")
    assert (page.run, page.previous) == (second, first)
    hits = (hit_in(opened),)
    assert [each.result for each in page.questions] == [
        QuestionResult(None, 2, RankChange.WORSE, hits),
        QuestionResult(1, None, RankChange.NEW, hits),
    ]
    third = keep(opened, {bearings: 1, valve: 1})
    page = opened.evaluation.questions("plant")
    assert (page.run, page.previous) == (third, second)
    changes = [each.result.change for each in page.questions if each.result]
    assert changes == [RankChange.IMPROVED, RankChange.SAME]


def test_a_file_of_questions_leaves_results_of_those_that_it_has(opened: OpenDirectory) -> None:
    opened.evaluation.replace("plant", [BEARINGS, VALVE])
    bearings, valve = (each.question_id for each in questions(opened))
    keep(opened, {bearings: 1, valve: 3})
    assert opened.evaluation.replace("plant", [replace(VALVE, document="pump.md"), BEARINGS]) == 2
    kept, changed = questions(opened)
    assert (kept.question_id, kept.result and kept.result.rank) == (bearings, 1)
    assert (changed.document, changed.result) == ("pump.md", None)


def test_a_deleted_question_takes_its_results_with_it(opened: OpenDirectory) -> None:
    opened.evaluation.replace("plant", [BEARINGS, VALVE])
    bearings, valve = (each.question_id for each in questions(opened))
    assert opened.evaluation.delete("plant", bearings).question == BEARINGS.question
    with pytest.raises(QuestionNotFound):
        opened.evaluation.delete("plant", bearings)
    keep(opened, {bearings: 1, valve: 2})  # it was deleted while the run went on
    assert [each.result and each.result.rank for each in questions(opened)] == [2]


def test_what_was_found_has_no_text_of_a_document_that_is_deleted(opened: OpenDirectory, tmp_path: Path) -> None:
    opened.evaluation.add("plant", VALVE)
    keep(opened, {questions(opened)[0].question_id: None}, (hit_in(opened),))
    opened.library.delete("plant", "pump.md")
    (question,) = questions(opened)
    assert question.result is not None
    assert [hit.document for hit in question.result.hits] == [None]
    database = (tmp_path / "data" / "documents.sqlite3").read_bytes()
    assert b"bearings" not in database
    assert b"pump.md" not in database


def test_questions_keep_a_collection_and_are_deleted_with_it(opened: OpenDirectory) -> None:
    opened.evaluation.replace("plant", [BEARINGS])
    keep(opened, {questions(opened)[0].question_id: 1})
    opened.library.delete("plant", "pump.md")
    assert len(questions(opened)) == 1
    opened.library.delete_collection("plant")
    with pytest.raises(CollectionNotFound):
        opened.evaluation.questions("plant")
    opened.collections.create("plant", CollectionSettings())
    assert opened.evaluation.questions("plant") == replace(opened.evaluation.questions("plant"), questions=(), total=0)
    assert opened.evaluation.questions("plant").run is None


def test_a_collection_that_is_not_there_has_no_questions(opened: OpenDirectory) -> None:
    for refused in (
        lambda: opened.evaluation.questions("nothing"),
        lambda: opened.evaluation.add("nothing", VALVE),
        lambda: opened.evaluation.replace("nothing", [VALVE]),
        lambda: opened.evaluation.delete("nothing", str(DocumentId("0"))),
    ):
        with pytest.raises(CollectionNotFound):
            refused()
