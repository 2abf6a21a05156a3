"""Answers of a daemon judged against what a SQuAD-format file says; pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edge_rag.core.answer import Citation, FinishReason

_LAYOUT: Final = re.compile(r"\s*(?:(?P<heading>[^\n]+)\n)?(- )?")


@dataclass(frozen=True, slots=True)
class Asked:
    """A question of the file.

    Attributes:
        text: The question.
        article: 0-based position of its article.
        document: Name of the document that answers it.
        answers: Texts it accepts.
    """

    text: str
    article: int
    document: str
    answers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Articles:
    """A SQuAD-format file.

    Attributes:
        documents: Each article's paragraphs by the names they get as documents; a paragraph that the file has twice is
            one document.
        questions: In the file's order; those the file says cannot be answered are left out.
    """

    documents: tuple[Mapping[str, str], ...]
    questions: tuple[Asked, ...]


@dataclass(frozen=True, slots=True)
class Given:
    """An answer as it came.

    Attributes:
        text: All of it.
        citations: In the order in which they came.
        reason: How it ended.
        evidence: How much spoke for there being an answer, 0 to 1.
    """

    text: str
    citations: tuple[Citation, ...]
    reason: FinishReason
    evidence: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an answer is worth.

    Attributes:
        found: Whether it is one, not the not-found answer.
        cites: Whether a citation is of the paragraph that holds the answer.
        verbatim: Whether every character of it is stored text that a citation names, or layout.
        contains: Whether it holds one of the texts that the question accepts.
    """

    found: bool
    cites: bool
    verbatim: bool
    contains: bool


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of the answers or of all questions, 0 to 1."""

    cites: float
    verbatim: float
    contains: float


@dataclass(frozen=True, slots=True)
class Summary:
    """What the answers to many questions are worth.

    Attributes:
        questions: How many were asked.
        not_found: Share that got the not-found answer.
        of_answers: Of those that got another one.
        of_questions: Of all; who got the not-found answer got nothing.
    """

    questions: int
    not_found: float
    of_answers: Shares
    of_questions: Shares


def read_articles(path: Path, step: int = 1) -> Articles:
    """Reads the first of every ``step`` articles of a file in SQuAD format, version 1 or 2.

    Raises:
        OSError, ValueError, KeyError, TypeError: It cannot be read or is in another format.
    """
    documents: list[dict[str, str]] = []
    questions: list[Asked] = []
    names: dict[str, str] = {}
    for number, article in enumerate(json.loads(path.read_text(encoding="utf-8"))["data"][::step]):
        documents.append({})
        for paragraph in article["paragraphs"]:
            context = paragraph["context"]
            if context not in names:
                names[context] = f"article-{number:03d}/paragraph-{len(documents[-1]):03d}.txt"
                documents[-1][names[context]] = context
            questions += (
                Asked(asked["question"], number, names[context], tuple(answer["text"] for answer in asked["answers"]))
                for asked in paragraph["qas"]
                if asked["answers"]
            )
    return Articles(tuple(documents), tuple(questions))


def judge(asked: Asked, given: Given, stored: Mapping[str, str]) -> Verdict:
    """Judges an answer.

    Args:
        asked: The question.
        given: The answer.
        stored: The documents' text by name, as the daemon keeps it.
    """
    if given.reason is FinishReason.NOT_FOUND:
        return Verdict(found=False, cites=False, verbatim=False, contains=False)
    return Verdict(
        found=True,
        cites=any(citation.document == asked.document for citation in given.citations),
        verbatim=is_verbatim(given, stored),
        contains=any(answer in given.text for answer in asked.answers),
    )


def is_verbatim(given: Given, stored: Mapping[str, str]) -> bool:
    """Returns whether an answer is stored text that citations name, with white space, bullets and lines that name the
    document of the citation after them.
    """
    end = 0
    for citation in given.citations:
        stored_text = stored[citation.document][citation.start : citation.end]
        if not stored_text == citation.text == given.text[citation.answer_start : citation.answer_end]:
            return False
        layout = _LAYOUT.fullmatch(given.text, end, citation.answer_start)
        if layout is None or layout["heading"] not in (None, citation.document):
            return False
        if end and not given.text[end].isspace():
            return False
        end = citation.answer_end
    return bool(given.citations) and end == len(given.text)


def summarize(verdicts: Sequence[Verdict]) -> Summary:
    """Counts.

    Args:
        verdicts: One a question, at least one.
    """
    found = [verdict for verdict in verdicts if verdict.found]
    return Summary(
        questions=len(verdicts),
        not_found=1 - len(found) / len(verdicts),
        of_answers=_shares(found, len(found)),
        of_questions=_shares(verdicts, len(verdicts)),
    )


def _shares(verdicts: Iterable[Verdict], count: int) -> Shares:
    cites = verbatim = contains = 0
    for verdict in verdicts:
        cites += verdict.cites
        verbatim += verdict.verbatim
        contains += verdict.contains
    every = max(1, count)
    return Shares(cites / every, verbatim / every, contains / every)
