"""A quoted answer: points, each understandable alone, under their subjects; pure.

Several points become lines of their own, so that nothing reads like one instruction made of unrelated sentences. Those
of one section are in the order of its text; sections are in the order of their best point. Where there are several, a
heading above each says what its points are about.

The sentence with the most evidence is chosen first, then each that has little less. Questions, and sentences that only
repeat the question (a heading, an entry of a list of questions), are no answer by themselves: the sentence that follows
gets their evidence. The lines of a table of contents are none either.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from edge_rag.analysis.questions import QuestionKind, asks_number, kind_of
from edge_rag.analysis.terms import terms_of
from edge_rag.core.ids import DocumentId
from edge_rag.core.limits.request_fields import MAX_SENTENCES
from edge_rag.core.passage import Passage, RankedPassage, Sentence
from edge_rag.core.text import is_open
from edge_rag.generator.quoting.blocks import Unit, Window, context_of, named_terms, section_of, unit_of
from edge_rag.reranker.candidate import heading_key
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


_HEADING_SHARE: Final = 0.75
"""Share of a heading's words that a question has if the heading only repeats it."""

_BLOCK_END: Final = "\n\n"
"""Between two blocks of a stored text; lines of one block have a single line break between them."""

_QUESTION: Final = re.compile("[?\uff1f\u061f\u055e\u1367\u2e2e]$|[\u0370-\u03ff\u1f00-\u1fff];$")
"""The end of a question; a Greek question mark is a semicolon in normal form C."""

_LETTER: Final = re.compile(r"[^\W\d_]")

_ENTRY: Final = re.compile(r"\W*(?:\w+\s)?\d+(?:\.\d+)*\.?(?:\s|$)")
"""The begin of a line of a table of contents: the number of a section."""

_INNER_ENTRY: Final = re.compile(r"\W*(?:\w+\s)?\d+\.\d+(?:\.\d+)*\.?(?:\s|$)")
"""The number of a subsection; every numbered table of contents has some."""

_CONTENTS_LINES: Final = 4
"""Fewest lines of a table of contents."""

_CLOSING: Final = "\"'”’»)]*_ "


def chosen_sentences(
    question: str, passages: Sequence[RankedPassage], margin: float, first: int | None = None
) -> Iterator[tuple[int, int, float]]:
    """Yields (rank of the passage, number of its sentence, evidence below the best) of the sentences to quote.

    Candidates are compared by evidence, then by the rank of the passage, then by position. A text that is in several
    places is chosen once, with the largest of their evidence, from the passage of the best rank.

    Args:
        margin: How far below the first sentence the evidence of another one may be, at least 0.
        first: Rank of the passage whose best sentence is first in any case; None for that with the most evidence.
    """
    repeats = _repeats(question)
    candidates = [found for rank, ranked in enumerate(passages) for found in _candidates(rank, ranked, repeats)]
    if not candidates:  # nothing but questions and headings
        candidates = [
            (each.evidence, rank, number)
            for rank, ranked in enumerate(passages)
            for number, each in enumerate(ranked.sentences)
        ]
    first_places: dict[str, tuple[int, int]] = {}
    evidence: dict[str, float] = {}
    for value, rank, number in candidates:
        text = _sentence_text(passages[rank], number)
        first_places.setdefault(text, (rank, number))
        evidence[text] = max(value, evidence.get(text, value))
    order = sorted(evidence, key=lambda text: (-evidence[text], first_places[text]))
    begin = next((text for text in order if first_places[text][0] == first), None)
    if begin is not None:
        yield *first_places[begin], 0.0
    for text in order:
        below = evidence[order[0]] - evidence[text]
        if below > margin:
            return
        if text != begin:
            yield *first_places[text], below


def _candidates(
    rank: int, ranked: RankedPassage, repeats: Callable[[RankedPassage, int], bool]
) -> Iterator[tuple[float, int, int]]:
    """Yields (evidence, rank, position) of the sentences that can be an answer."""
    inherited: float | None = None
    contents = _contents(ranked.passage)
    for number, sentence in enumerate(ranked.sentences):
        if any(start <= sentence.start < end for start, end in contents) or _is_label(_sentence_text(ranked, number)):
            continue
        if repeats(ranked, number):
            inherited = sentence.evidence if inherited is None else max(inherited, sentence.evidence)
        else:
            yield sentence.evidence if inherited is None else max(inherited, sentence.evidence), rank, number
            inherited = None


def _is_label(text: str) -> bool:
    """Whether a sentence is only a number, of a section or of a note, and no row of a table."""
    return not _LETTER.search(text) and " | " not in text


def _contents(passage: Passage) -> list[tuple[int, int]]:
    """Returns where a passage is in tables of contents, which name what others say; characters of its text."""
    around = passage.surroundings
    text, begin = (passage.text, 0) if around is None else (around.text, around.start - passage.start)
    found: list[tuple[int, int]] = []
    for block in text.split(_BLOCK_END):
        lines = block.split("\n")
        entries = sum(_ENTRY.match(line) is not None for line in lines)
        inner = sum(_INNER_ENTRY.match(line) is not None for line in lines)
        if len(lines) >= _CONTENTS_LINES and 2 * entries > len(lines) and 3 * inner >= len(lines):
            found.append((begin, begin + len(block)))
        begin += len(block) + len(_BLOCK_END)
    return found


def _repeats(question: str) -> Callable[[RankedPassage, int], bool]:
    """Returns a function that says whether a sentence asks, or has no word that the question does not have.

    Of a heading's words a quarter may be others, such as articles, which no list has to name in every language.
    """
    asked = {term for _, _, term in terms_of(question)}

    def repeats(ranked: RankedPassage, number: int) -> bool:
        sentence = _sentence_text(ranked, number)
        if _QUESTION.search(sentence.rstrip(_CLOSING)):
            return True
        terms = [term for _, _, term in terms_of(sentence)]
        known = sum(term in asked for term in terms)
        least = _HEADING_SHARE if _is_heading(ranked, number) else 1.0
        return bool(terms) and known >= least * len(terms)

    return repeats


def _is_heading(ranked: RankedPassage, number: int) -> bool:
    """Whether a sentence is a block of its own without an end mark, and another block or nothing else follows."""
    text, sentence = ranked.passage.text, ranked.sentences[number]
    following = ranked.sentences[number + 1 : number + 2]
    if not following and number == 0:
        return is_open(text)
    if not following or _BLOCK_END not in text[sentence.end : following[0].start]:
        return False
    before = ranked.sentences[number - 1].end if number else 0
    gap = text[before : sentence.start]
    one_of_lines = number > 0 and "\n" in gap and _BLOCK_END not in gap
    return not one_of_lines and is_open(text[sentence.start : sentence.end])


def _sentence_text(ranked: RankedPassage, number: int) -> str:
    sentence: Sentence = ranked.sentences[number]
    return ranked.passage.text[sentence.start : sentence.end]
