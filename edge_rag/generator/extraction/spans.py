"""Values in a text by their form: part numbers, dates, times, quantities, names, quoted texts; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from typing import Final

from edge_rag.analysis.numbers import Number, normal_numbers
from edge_rag.analysis.values import ValueKind, ValueWords

_WORD: Final = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_CLOCK: Final = re.compile(
    r"(?<![\d:.,])(?:[01]?\d|2[0-4])(?:[:h][0-5]\d(?::[0-5]\d)?)(?!\d)(?:\s?(?:[ap]\.?m\.?(?!\w)|Uhr\b))?"
    r"|(?<![\d:.,])(?:[01]?\d|2[0-4])\s?(?:[ap]\.?m\.?(?!\w)|Uhr\b)",
    re.IGNORECASE,
)
_YEAR: Final = re.compile(r"(?<![\w.,\-–/:])(?:1[0-9]\d\d|20\d\d)(?![\w%°€$£]|[.,:]\d|[-/]\d{1,2}(?!\d))")
_RANGE_END: Final = re.compile(r"\s?[-–]\s?\d")
_ISO_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_FOUR_DIGITS: Final = re.compile(r"\d{4}")
_MOST_DAYS: Final = 31
_CODE: Final = re.compile(
    r"(?<![\w.-])(?=[\w./-]*\d)(?=[\w./-]*[^\W\d_])[^\W_](?:[\w./-]*[^\W_])?|(?<![\w.-])\d+(?:-\d+)+(?![\w-])"
)
_ORDINAL: Final = re.compile(r"(?:st|nd|rd|th|s|h|er|e|º|am|pm)(?:-.*)?")
_NUMBERS: Final = re.compile(r"\d{4}-\d{1,2}-\d{1,2}|\d{1,2}-\d+|\d{4}-\d{4}|\d+-[^\W\d_]+")
_NAME_WORD: Final = re.compile(r"(?<![\w°])[^\W\d_](?:[\w'’&.-]*\w)?")
_MODEL: Final = re.compile(r" \d{1,4}[A-Z](?!\w)")
_QUOTED: Final = re.compile(
    r"[\"“„]([^\"“”„\n]{1,200})[\"”“]|«\s?([^«»\n]{1,200}?)\s?»|[「『]([^「」『』\n]{1,200})[」』]"
)
_NESTED: Final = (ValueKind.DATE, ValueKind.YEAR, ValueKind.MONTH, ValueKind.WEEKDAY)
"""Kinds that may contain each other."""

_TOKEN: Final = re.compile(r"[^\W_]+(?:['’.-][^\W_]+)*|[%‰°€$£¥][CFK]?\b|[^\w\s]")
_CURRENCY: Final = "€$£¥"
_SYMBOL: Final = re.compile(
    r"\s?(?:%|‰|(?:°|[Dd]eg\.?)\s?[CFK](?!\w)|°(?!\w)|[€$£¥]|[a-zA-ZµΩ]{1,4}[²³23]?(?:/[a-zA-Z]{1,3}[²³23]?)?(?!\w))"
)
_SHORT: Final = 3
"""Letters of a word, at most, that is no part of a unit, such as "in" before "years"."""

_HEADING_NUMBER: Final = re.compile(r"\s*(?:(?:\d+\.)+\d*\s+(?=[A-Z])|(?:\d+\.)+$)")
_PORT: Final = re.compile(r"\d+/[a-z]+")
_MODIFIERS: Final = frozenset(("sq", "cu"))
_ORDINAL_END: Final = re.compile(r"(?<=\d)(?:st|nd|rd|th)(?!\w)")
_LEADING: Final = re.compile(r"[1-9]\d{0,2}(?: \d{3})*")
_THOUSANDS: Final = re.compile(r"\d{3}")
_ONE_LETTER: Final = frozenset("smhdgtlLVAWNJKT")
_DASHES: Final = ("-", "–", "—", "...", "…", "~")
_GAP: Final = re.compile(r"[\s\u00a0\u202f-]{0,2}")


@dataclass(frozen=True, slots=True)
class Span:
    """A value in a text.

    Attributes:
        start: First character.
        end: One past the last.
        bare: One past the last character of the number alone, without what it counts; ``end`` of other values.
        readings: Possible values as a JSON number or an ISO date, likeliest first; none of a text.
        unit: What follows the number, lower case; empty without.
    """

    start: int
    end: int
    kind: ValueKind
    bare: int
    readings: tuple[str, ...] = ()
    unit: str = ""
    part: bool = False


def spans_of(text: str, words: ValueWords, mark: str = "") -> Iterator[Span]:
    """Yields the values in a text; some are part of others.

    Args:
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
    yield from (span for span in _quantities(text, words, mark) if span.kind is ValueKind.RHYTHM or is_free(span))
    yield from _names(text, words)
    for match in _QUOTED.finditer(text):
        start, end = next(place for number in (1, 2, 3) if (place := match.span(number)) != (-1, -1))
        yield Span(start, end, ValueKind.QUOTED, end)


def _codes(text: str, words: ValueWords) -> Iterator[Span]:
    for match in _CODE.finditer(text):
        token = match[0]
        if token[0].isdigit():
            rest = token.lstrip("0123456789.,").lower()
            if rest.lstrip("-") in words.units or _ORDINAL.fullmatch(rest) or _NUMBERS.fullmatch(token):
                continue  # a number with its unit, an ordinal, a date, a range, or "50-year"
            if _PORT.fullmatch(token):
                continue  # "3493/tcp"
        elif "-" in token and token.split("-")[0].lower() in words.numbers:
            continue
        yield Span(*match.span(), ValueKind.CODE, match.end())


def _dates(text: str, words: ValueWords) -> Iterator[Span]:
    taken: list[range] = []
    for match in words.date.finditer(text) if words.date is not None else ():
        whole = bool(match["day"] or match["later"] or match["year"])
        name = match["month"]
        if not whole and words.capital_months and (name[0].islower() or match.start() == 0):
            continue  # a verb or another word: may, march
        taken.append(range(*match.span()))
        yield Span(*match.span(), ValueKind.DATE if whole else ValueKind.MONTH, match.end(), _reading(match, words))
        if whole:
            yield Span(*match.span("month"), ValueKind.MONTH, match.end("month"))
        if match["year"]:
            yield Span(*match.span("year"), ValueKind.YEAR, match.end("year"), (match["year"],))
    for number in normal_numbers(text):
        if _ISO_DATE.fullmatch(number.readings[0]):
            taken.append(range(number.start, number.end))
            yield Span(number.start, number.end, ValueKind.DATE, number.end, number.readings)
            if year := _FOUR_DIGITS.search(text, number.start, number.end):
                yield Span(*year.span(), ValueKind.YEAR, year.end(), (year[0],))
    for match in words.decades.finditer(text) if words.decades is not None else ():
        taken.append(range(*match.span()))
        yield Span(*match.span(), ValueKind.DECADE, match.end())
    years = [*_YEAR.finditer(text)]
    for first, second in pairwise(years):
        between, before = text[first.end() : second.start()].strip().lower(), text[: first.start()].lower().split()
        opened = bool(before) and before[-1] in words.between
        if between in words.to or (between in words.range_conjunctions and opened):
            yield Span(first.start(), second.end(), ValueKind.DATE, second.end())
    for match in years:
        if not any(match.start() in each for each in taken):
            is_part = _RANGE_END.match(text, match.end()) is not None
            yield Span(*match.span(), ValueKind.YEAR, match.end(), (match[0],), part=is_part)
    for match in _WORD.finditer(text):
        if match[0].lower() in words.weekdays:
            yield Span(*match.span(), ValueKind.WEEKDAY, match.end())


def _reading(match: re.Match[str], words: ValueWords) -> tuple[str, ...]:
    day = match["day"] or match["later"]
    if not day or not match["year"] or not 1 <= int(day) <= _MOST_DAYS:
        return ()
    return (f"{int(match['year']):04}-{words.months[match['month'].lower()]:02}-{int(day):02}",)


def _times(text: str) -> Iterator[Span]:
    for match in _CLOCK.finditer(text):
        yield Span(*match.span(), ValueKind.TIME, match.end())


def _quantities(text: str, words: ValueWords, mark: str) -> Iterator[Span]:
    """Yields numbers with their units, ranges of them, and what says how often."""
    tokens = [(match.start(), match.end(), match[0].lower()) for match in _TOKEN.finditer(text)]
    heading = _HEADING_NUMBER.match(text)
    written = [number for number in normal_numbers(text, mark) if heading is None or number.start >= heading.end()]
    numbers = [*(_spaced(text, written) if words.spaced_thousands else written), *words.spelled_numbers(text)]
    single = [_quantity(text, number, tokens, words) for number in sorted(numbers, key=lambda number: number.start)]
    single = [*_joined(text, single)]
    parts: set[int] = set()
    for index, (span, following) in enumerate(pairwise(single)):
        pair = _range(text, span, following, words)
        if pair is not None:
            parts |= {index, index + 1}
            yield pair
    for index, span in enumerate(single):
        yield replace(span, part=index in parts)
    yield from _rhythms(text, single, tokens, words)


def _spaced(text: str, numbers: Iterable[Number]) -> Iterator[Number]:
    """Yields numbers; groups of thousands separated by plain spaces are one number."""
    kept: Number | None = None
    for number in numbers:
        digits = text[number.start : number.end]
        if (
            kept is not None
            and _LEADING.fullmatch(text, kept.start, kept.end)
            and _THOUSANDS.fullmatch(digits)
            and text[kept.end : number.start] == " "
        ):
            kept = Number(kept.start, number.end, (kept.readings[0] + digits,))
            continue
        if kept is not None:
            yield kept
        kept = number
    if kept is not None:
        yield kept


def _quantity(text: str, number: Number, tokens: Sequence[tuple[int, int, str]], words: ValueWords) -> Span:
    start, end, readings = number.start, number.end, number.readings
    sign = re.search(r"(?:(?<=^)|(?<=[\s(]))[-−]$", text[:start])
    if sign:
        start, readings = sign.start(), tuple(f"-{reading}" for reading in readings)
    following = [token for token in tokens if token[0] >= end]
    unit = ""
    if start and text[start - 1] in _CURRENCY:
        start, unit = start - 1, text[start - 1]
    if readings[0].count(".") > 1:  # an address or a version
        return Span(start, end, ValueKind.CODE, end)
    ordinal = _ORDINAL_END.match(text, end)
    if ordinal:
        return Span(start, ordinal.end(), ValueKind.ORDINAL, ordinal.end(), readings)
    if following and following[0][2] in words.magnitudes and _GAP.fullmatch(text, end, following[0][0]):
        readings = tuple(_scaled(reading, words.magnitudes[following[0][2]]) for reading in readings)
        end = following[0][1]
        following = following[1:]
        if text[end : end + 1] == "." and following:
            end += 1  # "30 Mio. Euro"
    bare = end
    if end > number.end and len(following) > 1 and following[0][2] in words.of and following[1][2] in words.units:
        end, following = following[0][1], following[1:]  # "5 millones de dólares"
    kind = ValueKind.AMOUNT if unit else ValueKind.COUNT
    at = _unit_end(text, end, following, words)
    if at > end:
        kind = ValueKind.AMOUNT
        unit, end = text[end:at].strip(" -\u00a0\u202f").lower(), at
    if unit in words.shares:
        kind = ValueKind.SHARE
    elif _is_time(unit, words):
        kind = ValueKind.SPAN
    return Span(start, end, kind, bare, readings, unit)


def _joined(text: str, spans: Sequence[Span]) -> Iterator[Span]:
    """Yields spans, those of a time in two units ("3 min 8 s") as one."""
    kept: Span | None = None
    for span in spans:
        if (
            kept is not None
            and kept.kind is span.kind is ValueKind.SPAN
            and kept.unit != span.unit
            and text[kept.end : span.start] == " "
        ):
            kept = Span(kept.start, span.end, ValueKind.SPAN, span.end, (), f"{kept.unit} {span.unit}")
            continue
        if kept is not None:
            yield kept
        kept = span
    if kept is not None:
        yield kept


def _is_time(unit: str, words: ValueWords) -> bool:
    parts = unit.split()
    return bool(parts) and parts[-1] in words.spans and not any(each in words.per for each in parts[:-1])


def _unit_end(text: str, end: int, following: Sequence[tuple[int, int, str]], words: ValueWords) -> int:
    """Returns where the unit ends that follows a number; ``end`` if none does."""
    symbol = _SYMBOL.match(text, end)
    at = end
    if symbol and symbol[0].strip() not in _MODIFIERS and _is_symbol(symbol[0].strip(), words):
        at = symbol.end()
    elif following and _GAP.fullmatch(text, end, following[0][0]):
        first = following[0][2]
        if first in words.units and len(first) > 1:
            at = following[0][1]
            if len(following) > 1 and following[1][2] in words.units and text[at : following[1][0]] == " ":
                at = following[1][1]  # degrees Celsius, square kilometres
        elif (
            len(following) > 1
            and following[1][2] in words.units
            and following[1][2] not in words.per
            and first.isalpha()
            and len(first) > _SHORT
            and first not in words.per | words.to | words.range_conjunctions
            and text[following[0][1] : following[1][0]] == " "
        ):
            at = following[1][1]  # operating hours
    if at == end:
        return end
    rest = [token for token in following if token[0] >= at]
    if len(rest) > 1 and rest[0][2] in words.per and rest[1][2] in words.units and text[at : rest[0][0]] == " ":
        return rest[1][1]  # litres per second
    return at


def _is_symbol(text: str, words: ValueWords) -> bool:
    if len(text) == 1 and text.isalpha():  # "20 a" is no current, in Spanish
        return text in _ONE_LETTER
    plain = text.lower().replace(" ", "")
    return plain in words.units or ("/" in plain and plain.split("/")[0] in words.units)


def _scaled(reading: str, power: int) -> str:
    try:
        scaled = Decimal(reading).scaleb(power)
    except InvalidOperation:
        return reading
    text = f"{scaled:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _range(text: str, first: Span, second: Span, words: ValueWords) -> Span | None:
    between, before = text[first.end : second.start].strip().lower(), text[: first.start].lower().split()[-1:]
    if first.end > second.start or (before and before[0] in words.origin):
        return None
    opened = bool(before) and before[0] in words.between
    shared = bool(second.unit) and first.end == first.bare
    if between in _DASHES or between in words.to or (between in words.range_conjunctions and (opened or shared)):
        return Span(first.start, second.end, second.kind, second.bare, (), second.unit)
    return None


def _rhythms(
    text: str, quantities: Sequence[Span], tokens: Sequence[tuple[int, int, str]], words: ValueWords
) -> Iterator[Span]:
    starts = {span.start: span for span in quantities}
    for index, (start, end, word) in enumerate(tokens):
        following = tokens[index + 1 : index + 3]
        if word in words.regularly:
            yield Span(start, end, ValueKind.RHYTHM, end)
        elif word in words.every and following:
            quantity = starts.get(following[0][0])
            if quantity is not None and quantity.end > quantity.bare:
                yield Span(start, quantity.end, ValueKind.RHYTHM, quantity.end)
            elif following[0][2] in words.units | words.weekdays | words.months.keys():
                yield Span(start, following[0][1], ValueKind.RHYTHM, following[0][1])
        elif word in words.times or ("-" in word and word.rpartition("-")[2] in words.times):
            begin = start
            if index and (tokens[index - 1][2] in words.numbers or tokens[index - 1][2].isdigit()):
                begin = tokens[index - 1][0]
            if begin < start or "-" in word:
                yield Span(begin, end, ValueKind.RHYTHM, end)
            if len(following) == 2 and following[0][2] in words.per and following[1][2] in words.units:
                yield Span(begin, following[1][1], ValueKind.RHYTHM, following[1][1])


def _names(text: str, words: ValueWords) -> Iterator[Span]:
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
        if model := _MODEL.match(text, end):
            end = model.end()  # "Astra 2A"
        first_word = start == 0 and last == index
        if not first_word:
            yield Span(start, end, ValueKind.NAME, end)
        index = last + 1


def _is_capital(match: re.Match[str]) -> bool:
    first = match[0][0]
    return first.isupper() and first.lower() != first
