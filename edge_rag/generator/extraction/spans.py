"""Values in a text, told by their form: part numbers, dates, times, quantities, names, quoted texts; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from edge_rag.analysis.numbers import normal_numbers
from edge_rag.generator.extraction.quantities import quantities_of
from edge_rag.generator.extraction.span import Kind, Span
from edge_rag.generator.extraction.words import Words

_WORD: Final = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_CLOCK: Final = re.compile(
    r"(?<![\d:.,])(?:[01]?\d|2[0-4])(?:[:h][0-5]\d(?::[0-5]\d)?)(?!\d)(?:\s?(?:[ap]\.?m\.?(?!\w)|Uhr\b))?"
    r"|(?<![\d:.,])(?:[01]?\d|2[0-4])\s?(?:[ap]\.?m\.?(?!\w)|Uhr\b)",
    re.IGNORECASE,
)
_YEAR: Final = re.compile(r"(?<![\w.,\-–/:])(?:1[0-9]\d\d|20\d\d)(?:s(?!\w))?(?![\w%°€$£]|[.,:]\d|[-/]\d{1,2}(?!\d))")
_ISO_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_FOUR_DIGITS: Final = re.compile(r"\d{4}")
_MOST_DAYS: Final = 31
_CODE: Final = re.compile(
    r"(?<![\w.-])(?=[\w./-]*\d)(?=[\w./-]*[^\W\d_])[^\W_](?:[\w./-]*[^\W_])?|(?<![\w.-])\d+(?:-\d+)+(?![\w-])"
)
_ORDINAL: Final = re.compile(r"(?:st|nd|rd|th|s|h|er|e|º|am|pm)(?:-.*)?")
_NUMBERS: Final = re.compile(r"\d{4}-\d{1,2}-\d{1,2}|\d{1,2}-\d+|\d{4}-\d{4}|\d+-[^\W\d_]+")
_NAME_WORD: Final = re.compile(r"[^\W\d_][\w'’&.-]*\w|[^\W\d_]")
_QUOTED: Final = re.compile(
    r"[\"“„]([^\"“”„\n]{1,200})[\"”“]|«\s?([^«»\n]{1,200}?)\s?»|[「『]([^「」『』\n]{1,200})[」』]"
)
_NESTED: Final = (Kind.DATE, Kind.YEAR, Kind.MONTH, Kind.WEEKDAY)
"""Kinds of which one may be in another."""


def spans_of(text: str, words: Words, mark: str = "") -> Iterator[Span]:
    """Yields the values in a text; some are part of others.

    Args:
        text: A sentence, or a cell of a table.
        words: Words of its language.
        mark: The character before fractions in it (``numbers.decimal_mark``).
    """
    taken: list[range] = []

    def is_free(span: Span) -> bool:
        return not any(each.start < span.end and span.start < each.stop for each in taken)

    for found in (_codes(text, words), _dates(text, words), _times(text)):
        for span in found:
            if span.kind in _NESTED or is_free(span):
                taken.append(range(span.start, span.end))
                yield span
    yield from (span for span in quantities_of(text, words, mark) if span.kind is Kind.RHYTHM or is_free(span))
    yield from _names(text, words)
    for match in _QUOTED.finditer(text):
        start, end = next(place for number in (1, 2, 3) if (place := match.span(number)) != (-1, -1))
        yield Span(start, end, Kind.QUOTED, end)


def _codes(text: str, words: Words) -> Iterator[Span]:
    for match in _CODE.finditer(text):
        token = match[0]
        if token[0].isdigit():
            rest = token.lstrip("0123456789.,").lower()
            if rest.lstrip("-") in words.units or _ORDINAL.fullmatch(rest) or _NUMBERS.fullmatch(token):
                continue  # a number with its unit, an ordinal, a date, a range, or "50-year"
        elif "-" in token and token.split("-")[0].lower() in words.numbers:
            continue
        yield Span(*match.span(), Kind.CODE, match.end())


def _dates(text: str, words: Words) -> Iterator[Span]:
    taken: list[range] = []
    for match in words.date.finditer(text) if words.date is not None else ():
        whole = bool(match["day"] or match["later"] or match["year"])
        name = match["month"]
        if not whole and words.capital_months and (name[0].islower() or match.start() == 0):
            continue  # a verb or another word: may, march
        taken.append(range(*match.span()))
        yield Span(*match.span(), Kind.DATE if whole else Kind.MONTH, match.end(), _reading(match, words))
        if whole:
            yield Span(*match.span("month"), Kind.MONTH, match.end("month"))
        if match["year"]:
            yield Span(*match.span("year"), Kind.YEAR, match.end("year"), (match["year"],))
    for number in normal_numbers(text):
        if _ISO_DATE.fullmatch(number.readings[0]):
            taken.append(range(number.start, number.end))
            yield Span(number.start, number.end, Kind.DATE, number.end, number.readings)
            if year := _FOUR_DIGITS.search(text, number.start, number.end):
                yield Span(*year.span(), Kind.YEAR, year.end(), (year[0],))
    years = [*_YEAR.finditer(text)]
    for first, second in pairwise(years):
        between, before = text[first.end() : second.start()].strip().lower(), text[: first.start()].lower().split()
        opened = bool(before) and before[-1] in words.between
        if between in words.to or (between in words.conjoined and opened):
            yield Span(first.start(), second.end(), Kind.DATE, second.end())
    for match in years:
        if not any(match.start() in each for each in taken):
            decade = match[0].endswith("s")
            yield Span(*match.span(), Kind.DECADE if decade else Kind.YEAR, match.end(), () if decade else (match[0],))
    for match in _WORD.finditer(text):
        if match[0].lower() in words.weekdays:
            yield Span(*match.span(), Kind.WEEKDAY, match.end())


def _reading(match: re.Match[str], words: Words) -> tuple[str, ...]:
    """Returns the ISO form of a date of day, month and year."""
    day = match["day"] or match["later"]
    if not day or not match["year"] or not 1 <= int(day) <= _MOST_DAYS:
        return ()
    return (f"{int(match['year']):04}-{words.months[match['month'].lower()]:02}-{int(day):02}",)


def _times(text: str) -> Iterator[Span]:
    for match in _CLOCK.finditer(text):
        yield Span(*match.span(), Kind.TIME, match.end())


def _names(text: str, words: Words) -> Iterator[Span]:
    """Yields runs of capitalized words, with the particles inside them."""
    matches = [*_NAME_WORD.finditer(text)]
    index = 0
    while index < len(matches):
        if not _is_capital(matches[index]):
            index += 1
            continue
        last = following = index
        while following + 1 < len(matches):
            gap = text[matches[following].end() : matches[following + 1].start()]
            if gap not in (" ", "\u00a0", " & ", ". "):
                break
            following += 1
            if _is_capital(matches[following]):
                last = following
            elif matches[following][0].lower() not in words.particles or following - last > 2:
                break
        start, end = matches[index].start(), matches[last].end()
        first_word = start == 0 and last == index
        if not first_word:
            yield Span(start, end, Kind.NAME, end)
        index = last + 1


def _is_capital(match: re.Match[str]) -> bool:
    first = match[0][0]
    return first.isupper() and first.lower() != first
