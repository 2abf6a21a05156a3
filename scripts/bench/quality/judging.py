"""Answers judged against a file in SQuAD format, and the not-found curve; pure."""

from __future__ import annotations

import re
import string
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from edge_rag.core.answer import Citation, FinishReason
from scripts.bench.harness.figures import share
from scripts.bench.harness.squad import Question

_LAYOUT: Final = re.compile(r"\s*(?:(?P<heading>[^\n]+)\n)?(- )?")


@dataclass(frozen=True, slots=True)
class Given:
    """An answer as it came; ``evidence`` for there being an answer is 0 to 1."""

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
    """Verdicts of many questions; ``of_answers`` leaves the not-found answers out, ``of_questions`` counts them."""

    questions: int
    not_found: float
    of_answers: Shares
    of_questions: Shares


def judge(asked: Question, given: Given, stored: Mapping[str, str]) -> Verdict:
    """Judges an answer by the documents' text as the daemon keeps it."""
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
    found = [verdict for verdict in verdicts if verdict.found]
    return Summary(len(verdicts), 1 - len(found) / len(verdicts), _shares(found), _shares(verdicts))


def _shares(verdicts: Sequence[Verdict]) -> Shares:
    return Shares(*(share([getattr(each, name) for each in verdicts]) for name in ("cites", "verbatim", "contains")))


def words(text: str) -> list[str]:
    """Returns the words as SQuAD's evaluation compares them: lower case, no punctuation, no articles."""
    bare = "".join(" " if character in "-–—" else character for character in text.lower())
    bare = "".join(character for character in bare if character not in string.punctuation)
    return [word for word in bare.split() if word not in {"a", "an", "the"}]


def contains(text: str, accepted: Sequence[str]) -> bool:
    padded = f" {' '.join(words(text))} "
    return any(f" {' '.join(words(each))} " in padded for each in accepted)


def f1(text: str, accepted: Sequence[str]) -> float:
    """Returns the harmonic mean of word precision and recall with the closest accepted text, 0 to 1."""
    mine = Counter(words(text))
    counts = [Counter(words(each)) for each in accepted]
    return max((2 * (mine & each).total() / max(1, mine.total() + each.total()) for each in counts), default=0.0)


@dataclass(frozen=True, slots=True)
class Point:
    """A threshold on the evidence, and the share of questions with and without an answer that it turns away."""

    threshold: float
    answerable: float
    unanswerable: float


def curve(answerable: Sequence[float], unanswerable: Sequence[float], thresholds: Sequence[float]) -> tuple[Point, ...]:
    """Returns what each threshold does to questions of this evidence, at least one of each kind."""
    with_answer, without = sorted(answerable), sorted(unanswerable)
    return tuple(
        Point(each, bisect_left(with_answer, each) / len(with_answer), bisect_left(without, each) / len(without))
        for each in thresholds
    )


def separation(answerable: Sequence[float], unanswerable: Sequence[float]) -> float:
    """Returns how often an answerable question has more evidence than an unanswerable one: the area under the ROC
    curve, 0 to 1; ties count half.
    """
    below = sorted(unanswerable)
    won = sum(bisect_left(below, value) + bisect_right(below, value) for value in answerable) / 2
    return won / (len(answerable) * len(unanswerable))
