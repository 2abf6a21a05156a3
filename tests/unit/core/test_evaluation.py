"""Test questions: what files of them hold, which rank a search gets, and how runs compare."""

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.documents.evaluation import (
    DEPTH,
    MAX_CHARACTERS,
    MAX_QUESTIONS,
    NewQuestion,
    RankChange,
    StoredQuestion,
    compared,
    first_expected,
    is_expected,
    parse_questions,
    summarized,
)
from edge_rag.core.ids import ChunkId, DocumentId
from edge_rag.core.passage import Duplicate, Passage, RankedPassage
from edge_rag.errors import InvalidRequest

RANKS = st.none() | st.integers(1, DEPTH)
TEXTS = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=40)
QUESTIONS = st.builds(NewQuestion, TEXTS, TEXTS, st.just("") | TEXTS)


def csv_of(questions: list[NewQuestion], delimiter: str, columns: tuple[str, ...]) -> bytes:
    file = io.StringIO()
    writer = csv.writer(file, delimiter=delimiter)
    writer.writerow(columns)
    writer.writerows([getattr(each, name) for name in columns] for each in questions)
    return file.getvalue().encode("utf-8-sig")


@given(
    st.lists(QUESTIONS, min_size=1, max_size=8),
    st.sampled_from(",;\t"),
    st.permutations(["question", "document", "text"]),
)
def test_a_spreadsheet_and_json_lines_are_read_as_they_were_written(
    questions: list[NewQuestion], delimiter: str, columns: list[str]
) -> None:
    expected = tuple(dict.fromkeys(questions))
    assert parse_questions(csv_of(questions, delimiter, tuple(columns)), "text/csv") == expected
    lines = [json.dumps({name: getattr(each, name) for name in columns}) for each in questions]
    assert parse_questions("\r\n\n".join(lines).encode()) == expected


def test_a_file_without_names_of_columns_has_them_in_order() -> None:
    found = parse_questions(b'"How often, and when?",pump.md\n\nWho?,crew.md,"the bosun"\n')
    assert found == (NewQuestion("How often, and when?", "pump.md"), NewQuestion("Who?", "crew.md", "the bosun"))


@pytest.mark.parametrize(
    ("content", "field", "problem"),
    [
        (b"", "body", "has no questions"),
        (b"question,document\n", "body", "has no questions"),
        (b'{"question": "Who?"}', "line 1: document", "must be 1 to 1,024 characters"),
        (b'{"question": "Who?", "document": "a"}\n{"question": 1, "document": "a"}', "line 2: question", "string"),
        (b'{"question": "Who?", "document": "a"}\nnothing', "body", "line 2 is not JSON"),
        (b'{"question": "Who?", "document": "a", "answer": "b"}', "line 1: answer", "is not one of question"),
        (b'{"question": "Who?", "document": "a"}\n[1]', "body", "line 2 is not an object"),
        (b"{" * 100_000, "body", "line 1 is not JSON"),
        (b"Who?,crew.md\nWhen?,", "line 2: document", "must be 1 to 1,024 characters"),
        (b"Who?,crew.md,the bosun,1", "body", "line 1 has more than 3 columns"),
        (b'Who?,"crew', "body", "is not CSV"),
        (b"Who?,\xff", "body", "is not UTF-8 at byte 5"),
        (b"%s,crew.md" % (b"x" * (MAX_CHARACTERS + 1)), "line 1: question", "at most 1,024 are allowed"),
        (b"\n".join(b"%d?,a" % each for each in range(MAX_QUESTIONS + 1)), "body", "has more than 1,000 questions"),
    ],
)
def test_what_a_file_has_wrong_is_named_with_its_line(content: bytes, field: str, problem: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_questions(content)
    assert caught.value.field == field
    assert problem in caught.value.problem


def passage(document: str, text: str, *duplicates: str) -> RankedPassage:
    copies = tuple(Duplicate(DocumentId(name), name, None, 0, len(text)) for name in duplicates)
    found = Passage(ChunkId(1), DocumentId(document), document, None, 0, len(text), text, duplicates=copies)
    return RankedPassage(found, 1.0, ())


def test_the_first_passage_of_the_document_with_the_text_counts() -> None:
    question = StoredQuestion("1", "How often?", "pump.md", "every  2,000 Hours")
    found = [
        passage("valve.md", "It is greased every 2,000 hours."),
        passage("pump.md", "Grease the bearings."),
        passage("pump.md", "It is greased every\n2,000 hours."),
        passage("pump.md", "Again every 2,000 hours."),
    ]
    assert first_expected(is_expected(question, each) for each in found) == 3
    assert first_expected(is_expected(question, each) for each in found[:2]) is None


def test_a_passage_stands_for_those_that_were_left_out_for_it() -> None:
    assert is_expected(StoredQuestion("1", "How often?", "copy.md", ""), passage("pump.md", "Often.", "copy.md"))


@given(RANKS, RANKS)
def test_a_run_compares_with_the_one_before_as_that_one_with_it(rank: int | None, before: int | None) -> None:
    opposite = {
        RankChange.SAME: RankChange.SAME,
        RankChange.IMPROVED: RankChange.WORSE,
        RankChange.WORSE: RankChange.IMPROVED,
    }
    change = compared(rank, before, asked_before=True)
    assert compared(before, rank, asked_before=True) is opposite[change]
    assert (change is RankChange.SAME) == (rank == before)
    if rank is not None and (before is None or rank < before):
        assert change is RankChange.IMPROVED
    assert compared(rank, before, asked_before=False) is RankChange.NEW


def test_a_summary_is_that_of_the_ranks() -> None:
    summary = summarized([1, 2, 10, None])
    assert (summary.questions, summary.recall_at_1, summary.recall_at_5, summary.recall_at_10) == (4, 0.25, 0.5, 0.75)
    assert summary.mrr == pytest.approx((1 + 1 / 2 + 1 / 10) / 4)


@given(st.lists(RANKS, min_size=1))
def test_measures_are_shares_in_their_order(ranks: list[int | None]) -> None:
    summary = summarized(ranks)
    assert 0 <= summary.recall_at_1 <= summary.recall_at_5 <= summary.recall_at_10 <= 1
    assert summary.recall_at_1 <= summary.mrr <= summary.recall_at_10
