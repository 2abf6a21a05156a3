"""The unit that is quoted with a sentence: its list, program, row or definition, and what introduces it; pure.

    a sentence that announces what follows, with a colon or as a title: the block after it
    an item of a list: the whole list, with the sentence that announces it, where the question asks for all of it
    a row of a table: the row, and apart from it the row that names its columns and the caption
    the text of a definition: the term above it
    a sentence of running text: its paragraph and the programs after it, where the question asks for something to do;
        the sentences up to the one that has a number, where the question asks for one

Which lists are steps is not stored. A question for something to do makes the lines of a block steps; any other question
gets the whole of a list only if a sentence announces it.

Positions are characters of the document's stored text. ``words.toml`` has the words, by language, with which a sentence
begins that needs the one before it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.resources import files
from typing import Final

from edge_rag.analysis.languages import language_of
from edge_rag.analysis.questions import BEFORE_WORDS, QuestionKind
from edge_rag.analysis.terms import terms_of
from edge_rag.core.documents.parts import ChunkPlace, PartKind, TextPart, parts_of
from edge_rag.core.passage import Passage
from edge_rag.core.text import SENTENCE_TERMINALS, is_open, sentence_spans

Span = tuple[int, int]
"""Characters of a document's stored text: the first one, and one past the last."""

TITLE_CHARACTERS: Final = 120
"""Most characters of a block that is a title without being stored as a heading."""

_COLONS: Final = (":", "\uff1a")
_CLOSING: Final = "\"'”’»)]*_ "


def ends_with_colon(sentence: str) -> bool:
    return sentence.rstrip(_CLOSING).endswith(_COLONS)


class Window:
    """A passage with the text around it, as far as that was read."""

    def __init__(self, passage: Passage) -> None:
        around = passage.surroundings
        self.passage = passage
        self.start = passage.start if around is None else around.start
        self.text = passage.text if around is None else around.text
        own = (ChunkPlace(passage.start, passage.end, passage.context),)
        self.parts: tuple[TextPart, ...] = tuple(
            parts_of(self.text, self.start, own if around is None else around.chunks)
        )

    def read(self, start: int, end: int) -> str:
        return self.text[start - self.start : end - self.start]

    def part_at(self, position: int) -> int:
        """Returns the number of the part that holds a character, which is not white space."""
        return next(number for number, part in enumerate(self.parts) if position < part.end)

    def lines(self, number: int) -> tuple[Span, ...]:
        """Returns the lines of a part."""
        part = self.parts[number]
        found: list[Span] = []
        begin = part.start
        for line in self.read(part.start, part.end).split("\n"):
            if line.strip():
                found.append((begin, begin + len(line)))
            begin += len(line) + 1
        return tuple(found)

    def sentences(self, number: int) -> tuple[Span, ...]:
        part = self.parts[number]
        spans = sentence_spans(self.read(part.start, part.end))
        return tuple((part.start + first, part.start + past) for first, past in spans)

    def is_list(self, number: int) -> bool:
        part = self.parts[number]
        return part.kind is PartKind.TEXT and "\n" in self.read(part.start, part.end)

    def is_title(self, number: int) -> bool:
        """Whether a part says what the parts after it are about: a heading, or a short line without an end mark."""
        part = self.parts[number]
        if part.kind is PartKind.HEADING:
            return True
        if part.kind is not PartKind.TEXT or number + 1 == len(self.parts):
            return False
        text = self.read(part.start, part.end)
        return "\n" not in text and len(text) <= TITLE_CHARACTERS and is_open(text)

    def section(self, number: int) -> range:
        """Returns the numbers of the parts of the section that a part is in, without headings."""
        first = past = number
        while first and self.parts[first - 1].kind is not PartKind.HEADING:
            first -= 1
        while past < len(self.parts) and self.parts[past].kind is not PartKind.HEADING:
            past += 1
        return range(first, max(past, number + 1))

    @cached_property
    def headings(self) -> tuple[Span, ...]:
        wanted = list(self.passage.context)
        return tuple(self._headings_before(wanted))

    def _headings_before(self, wanted: list[str]) -> Iterator[Span]:
        for part in reversed(self.parts):
            if part.kind is not PartKind.HEADING or part.end > self.passage.start:
                continue
            text = self.read(part.start, part.end)
            if text in wanted:
                del wanted[wanted.index(text) :]
                yield part.start, part.end


MAX_BLOCK_CHARACTERS: Final = 1500
"""Most characters quoted for one sentence: whole lines of a list, or whole parts of a procedure."""

_HEADED_COLUMNS: Final = 3
"""Columns from which the first row of a table counts as their names without other evidence."""

MAX_SENTENCES_TO_VALUE: Final = 5
"""Most sentences after a sentence within which its paragraph says the number that is asked for."""

_NARROWEST: Final = 40
"""Fewest characters of the longest line of a text whose lines were broken for their width."""

_OPENING: Final = "(<["

_DIVIDER: Final = " | "

_RECORD: Final = re.compile(r"\W*\d{2,}")
"""The begin of a line of a log, a date or a time; a list of them has no order that anyone must follow."""

_CODE: Final = re.compile(r"[=/\\<>|${}_\[\]#~]|(?:^|\s)--?\w")
"""Characters of programs and configuration files that are rare in titles."""

_SENTENCE_ENDS: Final = (".", "!", "?", "\u2026", ":", ";", *SENTENCE_TERMINALS)


@dataclass(frozen=True, slots=True)
class Unit:
    """The text that is quoted for a sentence.

    Attributes:
        start: First character in the document's stored text.
        end: One past the last.
        above: Caption and header of a table, in order.
        cut_before: Whether the list has items before it.
        cut_after: Whether the list has items after it.
    """

    start: int
    end: int
    above: tuple[Span, ...] = ()
    cut_before: bool = False
    cut_after: bool = False


def unit_of(
    window: Window, sentence: Span, kind: QuestionKind, asked: frozenset[str] = frozenset(), number: bool = False
) -> Unit:
    unit = _unit_of(window, sentence, kind, asked)
    return _with_number(window, unit, asked) if number else unit


def _unit_of(window: Window, sentence: Span, kind: QuestionKind, asked: frozenset[str]) -> Unit:
    number = window.part_at(sentence[0])
    if window.parts[number].kind is PartKind.TABLE:
        return _row(window, number, sentence, asked)
    sentence = _from_begin(window, number, sentence)
    if (announced := _announced(window, number, sentence)) is not None:
        return _with_steps(window, announced, kind)
    if window.is_list(number):
        return _with_steps(window, _item(window, number, sentence, kind), kind)
    if kind is QuestionKind.PROCEDURE:
        return _with_steps(window, _paragraph(window, number, sentence), kind)
    return Unit(*sentence)


def _paragraph(window: Window, number: int, sentence: Span) -> Unit:
    part = window.parts[number]
    if part.end - part.start <= MAX_BLOCK_CHARACTERS:
        return Unit(part.start, part.end)
    end, cut = _fitting([span for span in window.sentences(number) if span[0] >= sentence[0]], sentence[0])
    return Unit(sentence[0], max(end, sentence[1]), cut_after=cut)


def _with_number(window: Window, unit: Unit, asked: frozenset[str]) -> Unit:
    """Returns a unit with the sentences after it up to the one that has a number, if it has none itself.

    Only its own line is looked through, which is a paragraph, an item or the text of a definition. Of several
    sentences with numbers the first one that has a word of the question that the unit lacks is meant, else the first.
    """
    held = _terms(window, (unit.start, unit.end))
    if unit.cut_after or _numbers(held) - asked:
        return unit
    number = window.part_at(unit.end - 1)
    if window.parts[number].kind is not PartKind.TEXT:
        return unit
    line_end = next(end for _, end in window.lines(number) if end >= unit.end)
    after = [span for span in window.sentences(number) if unit.end <= span[0] < line_end][:MAX_SENTENCES_TO_VALUE]
    found = [(span, terms) for span in after if _numbers(terms := _terms(window, span)) - asked]
    named = [span for span, terms in found if terms & (asked - held)] or [span for span, _ in found]
    if not named or named[0][1] - unit.start > MAX_BLOCK_CHARACTERS:
        return unit
    return replace(unit, end=named[0][1])


def _terms(window: Window, span: Span) -> set[str]:
    return {term for _, _, term in terms_of(window.read(*span))}


def _numbers(terms: set[str]) -> set[str]:
    return {term for term in terms if any(map(str.isdigit, term))}


def section_of(window: Window) -> Unit | None:
    """Returns the section that a passage is in, as much of it as fits; None if its begin was not read."""
    number = window.part_at(window.passage.start)
    section = window.section(number)
    if section.start == 0 or window.parts[section.start - 1].kind is not PartKind.HEADING:
        return None
    start = window.parts[section.start].start
    spans = [
        span
        for each in section
        for span in (window.sentences(each) if window.parts[each].kind is PartKind.TEXT else window.lines(each))
    ]
    end, cut = _fitting(spans, start)
    return Unit(start, end, cut_after=cut) if end else None


def _from_begin(window: Window, number: int, sentence: Span) -> Span:
    """Returns a sentence with the lines of a block that it begins in, where lines were broken for their width.

    Such a line ends without a mark and has no room for the next word, and the next line begins with a small letter.
    """
    lines = window.lines(number)
    width = max(end - start for start, end in lines)
    begin = sentence[0]
    for start, end in reversed([line for line in lines if line[1] <= sentence[0]]):
        word = window.read(begin, sentence[1]).split(maxsplit=1)[0]
        goes_on = word[0].islower() or word[0] in _OPENING
        broken = goes_on and width >= _NARROWEST and end - start + 1 + len(word) > width
        if not broken or not is_open(window.read(start, end)):
            break
        begin = start
    return begin, sentence[1]


def _announced(window: Window, number: int, sentence: Span) -> Unit | None:
    """Returns a sentence with what it announces; None if it announces nothing."""
    colon = ends_with_colon(window.read(*sentence))
    rest = [span for span in window.sentences(number) if span[0] >= sentence[1]]
    if colon and rest:  # a line of a block announces the lines below it
        end, cut = _fitting(rest, sentence[0])
        return Unit(sentence[0], end, cut_after=cut) if end else None
    following = number + 1
    if rest or following == len(window.parts) or not (colon or _announces(window, number)):
        return None
    after = window.parts[following]
    if after.kind is PartKind.HEADING:
        return None
    first = window.sentences(following)[:1]
    if not colon and after.kind is PartKind.TEXT and not window.is_list(following) and not _is_open(window, following):
        return Unit(sentence[0], first[0][1])
    whole = window.lines(following) if "\n" in window.read(after.start, after.end) else window.sentences(following)
    end, cut = _fitting(whole, sentence[0])
    return Unit(sentence[0], end, cut_after=cut) if end else None


def _is_open(window: Window, number: int) -> bool:
    sentences = window.sentences(number)
    return is_open(window.read(*sentences[0]))


def _fitting(spans: tuple[Span, ...] | list[Span], start: int) -> tuple[int, bool]:
    """Returns the end of the last range that fits, 0 if none does, and whether some do not."""
    fitting = [end for _, end in spans if end - start <= MAX_BLOCK_CHARACTERS]
    return (fitting[-1] if fitting else 0), len(fitting) < len(spans)


def _item(window: Window, number: int, sentence: Span, kind: QuestionKind) -> Unit:
    """Returns the list of an item, or as much of the item as the question needs."""
    lines = window.lines(number)
    at = next(place for place, line in enumerate(lines) if sentence[0] < line[1])
    announcement = _announcement(window, number)
    whole = kind in (QuestionKind.PROCEDURE, QuestionKind.SEVERAL) or (
        kind is QuestionKind.OTHER and announcement is not None
    )
    if whole and announcement is None and not _is_steps(window, lines):
        whole = False
    term = _term_of(window, lines, at)
    if not whole:
        return Unit(sentence[0] if term is None else lines[term][0], sentence[1])
    if term is not None and announcement is None and kind is not QuestionKind.PROCEDURE:
        return Unit(lines[term][0], lines[at][1])
    start = announcement[0] if announcement is not None else lines[0][0]
    if lines[at][1] - start > MAX_BLOCK_CHARACTERS:
        last = len(lines) - 1
        first = at if term is None else term
        return Unit(lines[first][0], max(lines[at][1], sentence[1]), cut_before=True, cut_after=at < last)
    end, cut = _fitting(lines, start)
    return Unit(start, end, cut_after=cut)


def _announcement(window: Window, number: int) -> Span | None:
    """Returns the sentence that announces a list, in the part before it; None without one."""
    if number == 0 or window.parts[number - 1].kind is not PartKind.TEXT or window.is_list(number - 1):
        return None
    last = window.sentences(number - 1)[-1]
    return last if ends_with_colon(window.read(*last)) else None


def _is_steps(window: Window, lines: tuple[Span, ...]) -> bool:
    """Whether the lines of a list can be steps, and are not the records of a log."""
    records = sum(_RECORD.match(window.read(*line)) is not None for line in lines)
    return 2 * records < len(lines)


def _term_of(window: Window, lines: tuple[Span, ...], at: int) -> int | None:
    """Returns the line of the term that a line defines: a short one without an end mark before one with."""
    if at == 0 or is_open(window.read(*lines[at])):
        return None
    text = window.read(*lines[at - 1])
    return at - 1 if len(text) <= TITLE_CHARACTERS and is_open(text) else None


def _with_steps(window: Window, unit: Unit, kind: QuestionKind) -> Unit:
    """Returns a unit with the steps before and after it, where the question asks for something to do.

    Steps that hold programs are several parts: an item, a program, an item. The parts go on while one announces the
    next, or is a list or a program.
    """
    if kind is not QuestionKind.PROCEDURE:
        return unit
    first, last = window.part_at(unit.start), window.part_at(unit.end - 1)
    section = window.section(first)
    start, end, cut = unit.start, unit.end, unit.cut_after
    while not unit.cut_before and first > section.start and _led_to(window, first - 1, first):
        begin, whole = window.parts[first - 1].start, True
        if _announces(window, first - 1):
            begin = _from_begin(window, first - 1, window.sentences(first - 1)[-1])[0]
            whole = len(window.sentences(first - 1)) == 1
        if end - begin > MAX_BLOCK_CHARACTERS:
            break
        first, start = first - 1, begin
        if not whole:
            break
    while not cut and last + 1 < section.stop and _goes_on(window, last, last + 1):
        if window.parts[last + 1].end - start > MAX_BLOCK_CHARACTERS:
            cut = True
            break
        last += 1
        end = window.parts[last].end
    return Unit(start, max(end, unit.end), unit.above, unit.cut_before, cut)


def _goes_on(window: Window, number: int, following: int) -> bool:
    matter = window.parts[number].kind is PartKind.TABLE or window.is_list(number)
    if _is_program(window, following) or (_is_program(window, number - 1) and window.is_list(following)):
        return True
    return _announces(window, number) or (matter and _ends_with_colon(window, following))


def _is_program(window: Window, number: int) -> bool:
    """Whether a part is of commands or of a file's lines, not of sentences or titles; most of its lines decide."""
    if number < 0 or window.parts[number].kind is not PartKind.TEXT:
        return False
    lines = [window.read(*line).strip() for line in window.lines(number)]
    code = [
        line for line in lines if not line.endswith(_SENTENCE_ENDS) and (not line[0].isupper() or _CODE.search(line))
    ]
    return 2 * len(code) > len(lines)


def _led_to(window: Window, number: int, following: int) -> bool:
    program = window.is_list(following) or _is_open_paragraph(window, following)
    shown = number > 0 and _ends_with_colon(window, number - 1)
    return _ends_with_colon(window, number) or shown or (program and _goes_on(window, number, following))


def _announces(window: Window, number: int) -> bool:
    """Whether a part ends with a colon, or is one without an end mark: what it announces, or a program's line."""
    return _ends_with_colon(window, number) or (not window.is_list(number) and _is_open_paragraph(window, number))


def _ends_with_colon(window: Window, number: int) -> bool:
    part = window.parts[number]
    return part.kind is PartKind.TEXT and ends_with_colon(window.read(*window.sentences(number)[-1]))


def _is_open_paragraph(window: Window, number: int) -> bool:
    part = window.parts[number]
    text = window.read(part.start, part.end)
    return part.kind is PartKind.TEXT and is_open(text) and any(map(str.isalpha, text))


def _row(window: Window, number: int, sentence: Span, asked: frozenset[str]) -> Unit:
    """Returns the row of a sentence, with header and caption above it.

    Instead of a row whose first cell the question does not name, it is the only one whose first cell it names.
    """
    part, lines = window.parts[number], window.lines(number)
    at = next(place for place, line in enumerate(lines) if sentence[0] < line[1])
    header = part.header
    if header is None and part.columns >= _HEADED_COLUMNS and at > 0:
        header = 0
    caption = _caption(window, number)
    top = header or 0
    named = [place for place in range(len(lines)) if place != top and _is_named(window, lines[place], asked)]
    if len(named) == 1 and (at == top or not _is_named(window, lines[at], asked)):
        header, at = top if at == top else header, named[0]
    if header == at:
        end, cut = _fitting(lines, lines[at][0])
        return Unit(lines[at][0], end or lines[at][1], caption, cut_after=cut)
    if header is None or header > at or _is_labelled(window, lines[header], lines[at]):
        return Unit(*lines[at], caption)
    return Unit(*lines[at], (*caption, lines[header]))


def _is_named(window: Window, row: Span, asked: frozenset[str]) -> bool:
    cell, divider, _ = window.read(*row).partition(_DIVIDER)
    terms = _terms(window, (row[0], row[0] + len(cell)))
    return bool(divider) and bool(terms) and terms <= asked


def _is_labelled(window: Window, header: Span, row: Span) -> bool:
    label = window.read(*header).split(_DIVIDER, 1)[0].rstrip(":")
    return window.read(*row).startswith(f"{label}: ")


def _caption(window: Window, number: int) -> tuple[Span, ...]:
    if number == 0 or window.parts[number - 1].kind is PartKind.HEADING:
        return ()
    before = window.parts[number - 1]
    short = before.kind is PartKind.TEXT and before.end - before.start <= TITLE_CHARACTERS
    if short and _announces(window, number - 1):
        return ((before.start, before.end),)
    return ()


_STARTS: Final = {
    language: re.compile(pattern, re.IGNORECASE)
    for language, pattern in tomllib.loads((files(__package__) / "words.toml").read_text("utf-8")).items()
}


def refers_back(sentence: str, language: str) -> bool:
    """Whether a sentence begins with a pronoun or a connective of a language, so that it needs the previous one."""
    starts = _STARTS.get(language)
    return starts is not None and starts.match(sentence.lstrip(BEFORE_WORDS)) is not None


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
