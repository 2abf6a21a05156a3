"""Test questions of a collection: questions with the document that should be found, and how search did on them; pure.

Recall at k is the share of questions whose document is among the first k passages; MRR is the mean over the questions
of 1 / rank, 0 for a document that is not found (Voorhees, The TREC-8 Question Answering Track, 1999). Both look at the
first ``DEPTH`` passages.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Final

from edge_rag.core.ids import DocumentId
from edge_rag.core.limits.request_fields import parse_document_name, parse_text
from edge_rag.core.passage import Explanation, RankedPassage
from edge_rag.errors import InvalidRequest

MAX_QUESTIONS: Final = 1000
"""Most test questions of a collection."""

MAX_CHARACTERS: Final = 1024
"""Most characters of a question, and of the text that is expected."""

MAX_UPLOAD_BYTES: Final = 4 << 20
"""Most bytes of a file of questions."""

DEPTH: Final = 10
"""Passages of a search that are looked at."""

KEPT_HITS: Final = 3
"""Passages whose place and explanation are kept of each question, from the first on."""

_COLUMNS: Final = ("question", "document", "text")
_REQUIRED: Final = 2


@dataclass(frozen=True, slots=True)
class NewQuestion:
    """A test question before it is stored.

    Attributes:
        text: Text that the passage should hold, regardless of case and white space; empty if any passage will do.
    """

    question: str
    document: str
    text: str = ""

    def checked(self, prefix: str = "") -> NewQuestion:
        """Returns the question without white space around its texts.

        Args:
            prefix: What stands before the names of fields in errors.
        """
        return NewQuestion(
            parse_text(f"{prefix}question", self.question, MAX_CHARACTERS),
            parse_document_name(f"{prefix}document", self.document.strip()),
            parse_text(f"{prefix}text", self.text, MAX_CHARACTERS) if self.text.strip() else "",
        )


@dataclass(frozen=True, slots=True)
class EvaluationHit:
    """A passage that was found for a test question.

    Attributes:
        document_id: Id of its document.
        document: Name of the document; null if it does not exist any more.
        page: 1-based page on which the passage starts, or null.
        start: First character in the document's stored text.
        end: One past the last character.
        matches: Whether the question expects it.
        dense_rank: 1-based rank in the vector search; null if it is not in it.
        dense_score: Cosine similarity to the question, with ``dense_rank``.
        lexical_rank: 1-based rank in BM25; null if it is not in it.
        lexical_score: BM25 score, with ``lexical_rank``.
        fused_score: Sum over the rankings of weight / (k + rank).
        boost: Factor of the collection's boosts.
        retriever_rank: 1-based rank by the fused score times the boost.
        rerank_score: The reranker's score.
    """

    document_id: DocumentId
    document: str | None
    page: int | None
    start: int
    end: int
    matches: bool
    dense_rank: int | None
    dense_score: float | None
    lexical_rank: int | None
    lexical_score: float | None
    fused_score: float
    boost: float
    retriever_rank: int
    rerank_score: float | None


class RankChange(Enum):
    """How a rank compares with that of the run before. NEW: the question was not in that run."""

    NEW = "new"
    SAME = "same"
    IMPROVED = "improved"
    WORSE = "worse"


@dataclass(frozen=True, slots=True)
class QuestionResult:
    """The result of a run for a test question.

    Attributes:
        rank: 1-based rank of the first passage that is expected, 1 to 10; null if it is not among the first ten.
        previous_rank: The rank in the run before; null if it was not found, or not asked.
        change: How the rank compares with the run before.
        hits: The first passages that were found, best first.
    """

    rank: int | None
    previous_rank: int | None
    change: RankChange
    hits: tuple[EvaluationHit, ...]


@dataclass(frozen=True, slots=True)
class StoredQuestion:
    """A test question as stored.

    Attributes:
        question_id: Its id.
        question: The question.
        document: Name of the document that should be found.
        text: Text that the passage should hold; empty if any passage will do.
        exists: Whether the collection has a document of that name.
        result: The result of the last run; null before the first.
    """

    question_id: str
    question: str
    document: str
    text: str
    exists: bool = True
    result: QuestionResult | None = None


@dataclass(frozen=True, slots=True)
class EvaluationSummary:
    """How well a collection's test questions were answered by search.

    Attributes:
        questions: How many questions were asked.
        recall_at_1: Share of them whose expected passage was first, 0 to 1.
        recall_at_5: Share of them whose expected passage was among the first five, 0 to 1.
        recall_at_10: Share of them whose expected passage was among the first ten, 0 to 1.
        mrr: Mean reciprocal rank, 0 to 1.
    """

    questions: int
    recall_at_1: float
    recall_at_5: float
    recall_at_10: float
    mrr: float


@dataclass(frozen=True, slots=True)
class EvaluationRun:
    """A run of all test questions of a collection.

    Attributes:
        started_at: When it began, UTC.
        finished_at: When it was complete, UTC.
        summary: How well it went.
    """

    started_at: datetime
    finished_at: datetime
    summary: EvaluationSummary


@dataclass(frozen=True, slots=True)
class QuestionPage:
    """A page of a collection's test questions, with the last run and the one before.

    Attributes:
        questions: In the order in which they were added.
        total: How many the collection has.
        next: Id after which the next page begins; null at the end.
        run: The last run that was kept; null before the first.
        previous: The run before it; null if there was none.
    """

    questions: tuple[StoredQuestion, ...]
    total: int
    next: str | None
    run: EvaluationRun | None
    previous: EvaluationRun | None


def compared(rank: int | None, before: int | None, *, asked_before: bool) -> RankChange:
    """Returns how a rank compares with that of the run before; not found is worse than any rank."""
    if not asked_before:
        return RankChange.NEW
    if rank == before:
        return RankChange.SAME
    return RankChange.IMPROVED if (rank or DEPTH + 1) < (before or DEPTH + 1) else RankChange.WORSE


def summarized(ranks: Sequence[int | None]) -> EvaluationSummary:
    """Returns the summary of a run of at least one question by the ranks of the expected passages."""
    found = [rank for rank in ranks if rank is not None]
    first, fifth, tenth = (sum(rank <= most for rank in found) / len(ranks) for most in (1, 5, DEPTH))
    return EvaluationSummary(len(ranks), first, fifth, tenth, sum(1 / rank for rank in found) / len(ranks))


def is_expected(question: StoredQuestion, ranked: RankedPassage) -> bool:
    """Whether a question expects a passage.

    A passage stands for those of other documents with nearly the same text, which were left out for it.
    """
    passage = ranked.passage
    named = question.document in (passage.document, *(each.document for each in passage.duplicates))
    return named and _plain(question.text) in _plain(passage.text)


def hit_of(question: StoredQuestion, ranked: RankedPassage, explained: Explanation) -> EvaluationHit:
    """Returns the record of a passage that was found: its place, without its text, and how it got its rank."""
    passage, hit = ranked.passage, explained.hit
    return EvaluationHit(
        passage.document_id,
        passage.document,
        passage.page,
        passage.start,
        passage.end,
        is_expected(question, ranked),
        hit.dense_rank,
        hit.dense_score,
        hit.lexical_rank,
        hit.lexical_score,
        hit.fused_score,
        hit.boost,
        explained.retriever_rank,
        explained.rerank_score,
    )


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def parse_questions(content: bytes, media_type: str = "") -> tuple[NewQuestion, ...]:
    """Reads a file of questions: JSON lines or CSV, in UTF-8.

    A line of JSON is an object with ``question``, ``document`` and perhaps ``text``. A row of CSV has them as columns;
    a first row with these names gives their order. Columns are separated by commas, semicolons or tabs.

    Args:
        media_type: ``text/csv`` for CSV, any that ends in ``json``, ``jsonl`` or ``jsonlines`` for JSON lines; of
            others a text that begins with a brace is JSON lines.

    Returns:
        1 to ``MAX_QUESTIONS``, each once.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidRequest("body", f"is not UTF-8 at byte {error.start:,}") from None
    json_lines = media_type.endswith(("json", "jsonl", "jsonlines")) or (
        media_type != "text/csv" and text.lstrip().startswith("{")
    )
    found: dict[NewQuestion, None] = {}
    for question in _json_lines(text) if json_lines else _csv_rows(text):
        found[question] = None
        if len(found) > MAX_QUESTIONS:
            raise InvalidRequest("body", f"has more than {MAX_QUESTIONS:,} questions")
    if not found:
        raise InvalidRequest("body", "has no questions")
    return tuple(found)


def _json_lines(text: str) -> Iterator[NewQuestion]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            yield _question(_object(line, number), f"line {number}: ")


def _object(line: str, number: int) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise InvalidRequest("body", f"line {number} is not JSON") from None
    if not isinstance(found, dict):
        raise InvalidRequest("body", f"line {number} is not an object")
    return found


def _csv_rows(text: str) -> Iterator[NewQuestion]:
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    columns: Sequence[str] = _COLUMNS
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    is_first = True
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            names = [cell.lower() for cell in cells]
            header = is_first and set(_COLUMNS[:_REQUIRED]) <= set(names)
            is_first = is_first and not any(cells)
            if header:
                columns = names
            elif any(cells):
                if len(cells) > len(columns):
                    raise InvalidRequest("body", f"line {reader.line_num} has more than {len(columns)} columns")
                yield _question(dict(zip(columns, cells, strict=False)), f"line {reader.line_num}: ")
    except csv.Error as error:
        raise InvalidRequest("body", f"line {reader.line_num} is not CSV: {error}") from None


def _question(given: dict[str, Any], prefix: str) -> NewQuestion:
    for name in given:
        if name not in _COLUMNS:
            raise InvalidRequest(f"{prefix}{name[:64]}", f"is not one of {', '.join(_COLUMNS)}")
    values = [given.get(name) or "" for name in _COLUMNS]
    for name, value in zip(_COLUMNS, values, strict=True):
        if not isinstance(value, str):
            raise InvalidRequest(f"{prefix}{name}", "must be a string")
    return NewQuestion(*values).checked(prefix)


def first_expected(hits: Iterable[bool]) -> int | None:
    """Returns the 1-based rank of the first passage that is expected; None if there is none."""
    return next((rank for rank, matches in enumerate(hits, 1) if matches), None)
