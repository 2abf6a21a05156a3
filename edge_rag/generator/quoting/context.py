"""The heading or the sentence that is quoted before a text to introduce it; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from edge_rag.analysis.languages import language_of
from edge_rag.analysis.terms import terms_of
from edge_rag.core.documents.parts import PartKind
from edge_rag.generator.quoting.blocks import Unit
from edge_rag.generator.quoting.window import Span, Window
from edge_rag.generator.quoting.words import refers_back

MAX_SENTENCES_BEFORE: Final = 2
"""Most sentences that are quoted before a text to introduce it."""

MAX_CONTEXT_CHARACTERS: Final = 400
"""Most characters of such a sentence; a longer one says too much besides."""

_NAMED_SHARE: Final = 0.5
"""Weight of a word of the question, as a share of its rarest one's, from which it names what is asked about."""


def named_terms(weights: Mapping[str, float]) -> frozenset[str]:
    least = _NAMED_SHARE * max(weights.values(), default=0.0)
    return frozenset(term for term, weight in weights.items() if weight >= least > 0)


def context_of(window: Window, unit: Unit, named: frozenset[str]) -> tuple[Span, ...]:
    """Returns what is quoted before a unit, in the order of the text."""
    before: list[Span] = []
    language = language_of(window.passage.text)
    start = unit.start
    while len(before) < MAX_SENTENCES_BEFORE and refers_back(window.read(start, unit.end), language):
        previous = _before(window, start)
        if previous is None:
            break
        before.insert(0, previous)
        start = previous[0]
    heading: list[Span] = []
    if refers_back(window.read(start, unit.end), language) and _before(window, start) is None:
        heading += _headings(window, start)[:1]
    held = {term for span in ((unit.start, unit.end), *before, *heading, *unit.above) for term in _terms(window, span)}
    for found in _headings(window, start):
        if (named - held) & _terms(window, found):
            heading.append(found)
            held |= _terms(window, found)
    previous = _before(window, start) if not before else None
    if previous is not None and (named - held) & _terms(window, previous):
        before.append(previous)
    return tuple(sorted({*heading, *before, *unit.above}))


def _terms(window: Window, span: Span) -> set[str]:
    return {term for _, _, term in terms_of(window.read(*span))}


def _before(window: Window, position: int) -> Span | None:
    """Returns the sentence before a position in its section; of an item of a list what stands before the list."""
    number = window.part_at(position)
    part = window.parts[number]
    if part.kind is PartKind.HEADING:
        return None
    if part.kind is not PartKind.TABLE and not window.is_list(number):
        earlier = [span for span in window.sentences(number) if span[1] <= position]
        if earlier:
            return _short(earlier[-1])
    elif window.is_list(number):
        line = next(line for line in window.lines(number) if position < line[1])
        earlier = [span for span in window.sentences(number) if line[0] <= span[0] and span[1] <= position]
        if earlier:
            return _short(earlier[-1])
    if number == window.section(number).start or window.parts[number - 1].kind is not PartKind.TEXT:
        return None
    if window.is_list(number - 1) or window.is_title(number - 1):
        return None
    return _short(window.sentences(number - 1)[-1])


def _short(span: Span) -> Span | None:
    return span if span[1] - span[0] <= MAX_CONTEXT_CHARACTERS else None


def _headings(window: Window, position: int) -> tuple[Span, ...]:
    number = window.part_at(position)
    found: list[Span] = []
    first = window.section(number).start
    for before in range(number - 1, first - 1, -1):
        if window.is_title(before):
            found.append((window.parts[before].start, window.parts[before].end))
            break
    return (*found, *window.headings)
