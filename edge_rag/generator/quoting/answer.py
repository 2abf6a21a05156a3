"""A quoted answer: points, each understandable alone, under their subjects; pure.

Several points become lines of their own, so that nothing reads like one instruction made of unrelated sentences. Those
of one section are in the order of its text; sections are in the order of their best point. Where there are several, a
heading above each says what its points are about.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from edge_rag.analysis.questions import QuestionKind, asks_number, kind_of
from edge_rag.analysis.terms import terms_of
from edge_rag.core.ids import DocumentId
from edge_rag.core.limits.request_fields import MAX_SENTENCES
from edge_rag.core.passage import RankedPassage
from edge_rag.generator.quoting.blocks import Unit, section_of, unit_of
from edge_rag.generator.quoting.choose import chosen_sentences
from edge_rag.generator.quoting.context import context_of, named_terms
from edge_rag.generator.quoting.window import Window
from edge_rag.reranker.labels import heading_key
from edge_rag.reranker.scoring import weights_by_term

CUT: Final = "[…]"
"""Stands in an answer for the rest of a list that was cut."""

_BULLET: Final = "- "
_INDENT: Final = "  "

_ASKED_SHARE: Final = 0.75
"""Share of the weight of a question's words that a heading holds if its section answers the question."""

_NEEDED_MARGIN: Final[Mapping[QuestionKind, float]] = {
    QuestionKind.VALUE: 0.25,
    QuestionKind.PROCEDURE: 0.1,
    QuestionKind.OTHER: 0.25,
    QuestionKind.SEVERAL: 0.5,
}
"""How far below the first point the evidence of a further one may be for an answer to need it, as a share of the margin
that is allowed if a number of points is asked for."""


@dataclass(frozen=True, slots=True)
class Quote:
    """A range of a document that is quoted.

    Attributes:
        passage: 0-based rank of the passage.
        start: First character in the document's stored text.
        end: One past the last.
        context: Whether it only introduces the next quote.
        gap: Text between it and the next quote of its point: stored white space within a line, else a line break.
    """

    passage: int
    start: int
    end: int
    text: str
    context: bool = False
    gap: str = "\n"


@dataclass(frozen=True, slots=True)
class Point:
    """A point of an answer.

    Attributes:
        above: Quotes that introduce it, in the order of the text.
        cut_before: Whether its list has items before it.
        cut_after: Whether its list has items after it.
        sentence: 0-based number of the sentence in its passage that was chosen.
    """

    quote: Quote
    sentence: int
    above: tuple[Quote, ...] = ()
    cut_before: bool = False
    cut_after: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """Points of one section.

    Attributes:
        subject: A heading that is quoted above them, or a name that stands there; None if nothing is needed.
        points: In the order of the text, at least one.
    """

    subject: Quote | str | None
    points: tuple[Point, ...]


def points_of(
    question: str,
    passages: Sequence[RankedPassage],
    max_points: int | None,
    margin: float,
    term_weights: Mapping[str, float] | None = None,
) -> tuple[Point, ...]:
    """Returns the points of an answer, best first; none only if no passage has a sentence.

    Args:
        max_points: Most points, at least 1; None for as many as the answer needs.
        margin: How far below the first point the evidence of a second one may be, at least 0; half of it for a third, a
            third of it for a fourth.
        term_weights: Weights of the question's words, as of ``Retrieved``.
    """
    kind = kind_of(question)
    needed = max_points is None
    if max_points is None:
        max_points, margin = MAX_SENTENCES, margin * _NEEDED_MARGIN[kind]
    weights = weights_by_term(term_weights or {})
    words, number = frozenset(weights), kind is QuestionKind.VALUE and asks_number(question)
    named = named_terms(weights)
    windows: dict[int, Window] = {}
    points: list[Point] = []
    asked = None if kind is QuestionKind.VALUE else _asked_passage(passages, weights)
    for rank, place, below in chosen_sentences(question, passages, margin, asked):
        if points and (len(points) == max_points or below > margin / len(points)):
            break
        passage, sentence = passages[rank].passage, passages[rank].sentences[place]
        if needed and points and kind is QuestionKind.PROCEDURE and not _same_section(passages, points[0], rank):
            continue  # steps of something else
        window = windows.setdefault(rank, Window(passage))
        span = (passage.start + sentence.start, passage.start + sentence.end)
        unit = unit_of(window, span, kind, words, number)
        if rank == asked and not points and (section := section_of(window)) is not None:
            unit, max_points = section, 1 if needed else max_points
        if not any(_overlaps(passages, point.quote, rank, unit) for point in points):
            points.append(_point(window, rank, place, unit, named))
    return tuple(points)


def _asked_passage(passages: Sequence[RankedPassage], weights: Mapping[str, float]) -> int | None:
    """Returns the best passage whose heading is the question, so that its section is the answer; None without one.

    If the question has every word of the heading, the words of the headings above and of the document's name count too:
    "What is the sidebar of Mutt?" asks for the section "Sidebar" of Mutt's manual.
    """
    total = sum(weights.values())
    for rank, ranked in enumerate(passages):
        passage = ranked.passage
        heading = _terms(heading_key(passage.context))
        if heading and heading <= weights.keys():
            heading |= _terms(" ".join((*passage.context, passage.document)))
        held = sum(weight for term, weight in weights.items() if term in heading)
        if ranked.sentences and total > 0 and held >= _ASKED_SHARE * total:
            return rank
    return None


def _terms(text: str) -> set[str]:
    return {term for _, _, term in terms_of(text)}


def _point(window: Window, rank: int, number: int, unit: Unit, named: frozenset[str]) -> Point:
    spans = (*context_of(window, unit, named), (unit.start, unit.end))
    above = tuple(
        Quote(rank, *span, window.read(*span), context=True, gap=_gap(window.read(span[1], following[0])))
        for span, following in pairwise(spans)
    )
    quote = Quote(rank, unit.start, unit.end, window.read(unit.start, unit.end))
    return Point(quote, number, above, unit.cut_before, unit.cut_after)


def _gap(between: str) -> str:
    return between if not between.strip() and "\n" not in between else "\n"


def _same_section(passages: Sequence[RankedPassage], point: Point, rank: int) -> bool:
    first, other = passages[point.quote.passage].passage, passages[rank].passage
    return (first.document_id, first.context) == (other.document_id, other.context)


def _overlaps(passages: Sequence[RankedPassage], quote: Quote, rank: int, unit: Unit) -> bool:
    same = passages[quote.passage].passage.document_id == passages[rank].passage.document_id
    return same and quote.start < unit.end and unit.start < quote.end


def grouped(points: Sequence[Point], passages: Sequence[RankedPassage]) -> tuple[Group, ...]:
    """Returns points by their sections, with a subject each if there are several.

    Points without text between them become one. A text is not quoted a second time to introduce a point.
    """
    by_section: dict[tuple[DocumentId, tuple[str, ...]], list[Point]] = {}
    for point in points:
        passage = passages[point.quote.passage].passage
        by_section.setdefault((passage.document_id, passage.context), []).append(point)
    groups: list[Group] = []
    for found in by_section.values():
        ordered = _joined(sorted(found, key=lambda point: point.quote.start), passages)
        subject = None if len(by_section) == 1 else _subject(ordered, passages)
        seen = {(subject.start, subject.end)} if isinstance(subject, Quote) else set()
        shown: list[Point] = []
        for point in ordered:
            above = tuple(each for each in point.above if (each.start, each.end) not in seen)
            seen |= {(each.start, each.end) for each in above}
            shown.append(replace(point, above=above))
        groups.append(Group(subject, tuple(shown)))
    return tuple(groups)


def _joined(points: Sequence[Point], passages: Sequence[RankedPassage]) -> list[Point]:
    joined = list(points[:1])
    for point in points[1:]:
        last = joined[-1].quote
        above = tuple(
            each for each in point.above if not any(one.quote.start <= each.start < one.quote.end for one in joined)
        )
        gap = _between(passages, last, point.quote)
        if not above and gap is not None and gap.isspace() and "\n" not in gap:
            whole = replace(last, end=point.quote.end, text=last.text + gap + point.quote.text)
            joined[-1] = replace(joined[-1], quote=whole, cut_after=point.cut_after)
        else:
            joined.append(replace(point, above=above))
    return joined


def _between(passages: Sequence[RankedPassage], first: Quote, second: Quote) -> str | None:
    """Returns the stored text between two quotes of one passage; None if they are of different ones."""
    if first.passage != second.passage:
        return None
    return Window(passages[first.passage].passage).read(first.end, second.start)


def _subject(points: Sequence[Point], passages: Sequence[RankedPassage]) -> Quote | str:
    rank = points[0].quote.passage
    window = Window(passages[rank].passage)
    above = [span for span in window.headings if span[1] <= min(point.quote.start for point in points)]
    if above:
        return Quote(rank, *above[0], window.read(*above[0]), context=True)
    passage = passages[rank].passage
    return passage.context[-1] if passage.context else passage.document


def laid_out(groups: Sequence[Group]) -> Iterator[str | Quote]:
    """Yields the text of an answer: the quotes, and what stands between them."""
    several = sum(len(group.points) for group in groups) > 1
    long = several and any("\n" in point.quote.text for group in groups for point in group.points)
    for number, group in enumerate(groups):
        if number:
            yield "\n\n"
        if group.subject is not None:
            yield group.subject
            yield "\n"
        for place, point in enumerate(group.points):
            if place:
                yield "\n\n" if long else "\n"
            yield from _lines_of(point, several)


def _lines_of(point: Point, several: bool) -> Iterator[str | Quote]:
    new_line = f"\n{_INDENT}" if several else "\n"
    if several:
        yield _BULLET
    for each in point.above:
        yield each
        yield each.gap if each.gap != "\n" else new_line
    if point.cut_before:
        yield CUT + new_line
    yield point.quote
    if point.cut_after:
        yield new_line + CUT
