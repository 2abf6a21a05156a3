"""Numbers of a text with their units, ranges of them, and what says how often; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from typing import Final

from edge_rag.analysis.numbers import Number, normal_numbers
from edge_rag.generator.extraction.span import Kind, Span
from edge_rag.generator.extraction.words import Words

_TOKEN: Final = re.compile(r"[^\W_]+(?:['’.-][^\W_]+)*|[%‰°€$£¥][CFK]?\b|[^\w\s]")
_CURRENCY: Final = "€$£¥"
_SYMBOL: Final = re.compile(
    r"\s?(?:%|‰|°\s?[CFK]?(?!\w)|[€$£¥]|[a-zA-ZµΩ]{1,4}[²³23]?(?:/[a-zA-Z]{1,3}[²³23]?)?(?!\w))"
)
_SHORT: Final = 3
"""Letters of a word, at most, that is no part of a unit, such as "in" before "years"."""

_ONE_LETTER: Final = frozenset("smhdgtlLVAWNJKT")
_DASHES: Final = ("-", "–", "—", "...", "…", "~")
_GAP: Final = re.compile(r"[\s\u00a0\u202f-]{0,2}")


def quantities_of(text: str, words: Words, mark: str) -> Iterator[Span]:
    """Yields numbers with their units, ranges of them, and what says how often."""
    tokens = [(match.start(), match.end(), match[0].lower()) for match in _TOKEN.finditer(text)]
    numbers = [*normal_numbers(text, mark), *_number_words(tokens, words)]
    single = [_quantity(text, number, tokens, words) for number in sorted(numbers, key=lambda number: number.start)]
    parts: set[int] = set()
    for index, (span, following) in enumerate(pairwise(single)):
        pair = _range(text, span, following, words)
        if pair is not None:
            parts |= {index, index + 1}
            yield pair
    for index, span in enumerate(single):
        yield replace(span, part=index in parts)
    yield from _rhythms(text, single, tokens, words)


def _number_words(tokens: Sequence[tuple[int, int, str]], words: Words) -> Iterator[Number]:
    for start, end, word in tokens:
        reading = words.numbers.get(word)
        if reading is None and "-" in word:
            ten, _, one = word.partition("-")
            if ten in words.numbers and one in words.numbers and words.numbers[ten].endswith("0"):
                reading = str(int(words.numbers[ten]) + int(words.numbers[one]))
        if reading is not None:
            yield Number(start, end, (reading,))


def _quantity(text: str, number: Number, tokens: Sequence[tuple[int, int, str]], words: Words) -> Span:
    start, end, readings = number.start, number.end, number.readings
    sign = re.search(r"(?:(?<=^)|(?<=[\s(]))[-−]$", text[:start])
    if sign:
        start, readings = sign.start(), tuple(f"-{reading}" for reading in readings)
    following = [token for token in tokens if token[0] >= end]
    unit = ""
    if start and text[start - 1] in _CURRENCY:
        start, unit = start - 1, text[start - 1]
    if following and following[0][2] in words.magnitudes and _GAP.fullmatch(text, end, following[0][0]):
        readings = tuple(_scaled(reading, words.magnitudes[following[0][2]]) for reading in readings)
        end = following[0][1]
        following = following[1:]
    bare = end
    kind = Kind.NUMBER
    at = _unit_end(text, end, following, words)
    if at > end:
        unit, end = text[end:at].strip(" -\u00a0\u202f").lower(), at
    if unit in words.shares:
        kind = Kind.SHARE
    elif _is_time(unit, words):
        kind = Kind.SPAN
    return Span(start, end, kind, bare, readings, unit)


def _is_time(unit: str, words: Words) -> bool:
    parts = unit.split()
    return bool(parts) and parts[-1] in words.spans and not any(each in words.per for each in parts[:-1])


def _unit_end(text: str, end: int, following: Sequence[tuple[int, int, str]], words: Words) -> int:
    """Returns where the unit ends that follows a number; ``end`` if none does."""
    symbol = _SYMBOL.match(text, end)
    at = end
    if symbol and _is_symbol(symbol[0].strip(), words):
        at = symbol.end()
    elif following and _GAP.fullmatch(text, end, following[0][0]):
        first = following[0][2]
        if first in words.units:
            at = following[0][1]
            if len(following) > 1 and following[1][2] in words.units and text[at : following[1][0]] == " ":
                at = following[1][1]  # degrees Celsius, square kilometres
        elif (
            len(following) > 1
            and following[1][2] in words.units
            and following[1][2] not in words.per
            and first.isalpha()
            and len(first) > _SHORT
            and first not in words.per | words.to | words.conjoined
            and text[following[0][1] : following[1][0]] == " "
        ):
            at = following[1][1]  # operating hours
    if at == end:
        return end
    rest = [token for token in following if token[0] >= at]
    if len(rest) > 1 and rest[0][2] in words.per and rest[1][2] in words.units and text[at : rest[0][0]] == " ":
        return rest[1][1]  # litres per second
    return at


def _is_symbol(text: str, words: Words) -> bool:
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


def _range(text: str, first: Span, second: Span, words: Words) -> Span | None:
    """Returns the range of which two numbers are the ends."""
    between, before = text[first.end : second.start].strip().lower(), text[: first.start].lower().split()[-1:]
    if first.end > second.start or (before and before[0] in words.origin):
        return None
    opened = bool(before) and before[0] in words.between
    shared = bool(second.unit) and first.end == first.bare
    if between in _DASHES or between in words.to or (between in words.conjoined and (opened or shared)):
        return Span(first.start, second.end, second.kind, second.bare, (), second.unit)
    return None


def _rhythms(
    text: str, quantities: Sequence[Span], tokens: Sequence[tuple[int, int, str]], words: Words
) -> Iterator[Span]:
    starts = {span.start: span for span in quantities}
    for index, (start, end, word) in enumerate(tokens):
        following = tokens[index + 1 : index + 3]
        if word in words.regularly:
            yield Span(start, end, Kind.RHYTHM, end)
        elif word in words.every and following:
            quantity = starts.get(following[0][0])
            if quantity is not None and quantity.end > quantity.bare:
                yield Span(start, quantity.end, Kind.RHYTHM, quantity.end)
            elif following[0][2] in words.units | words.weekdays | words.months.keys():
                yield Span(start, following[0][1], Kind.RHYTHM, following[0][1])
        elif word in words.times:
            begin = start
            if index and (tokens[index - 1][2] in words.numbers or tokens[index - 1][2].isdigit()):
                begin = tokens[index - 1][0]
            if len(following) == 2 and following[0][2] in words.per and following[1][2] in words.units:
                yield Span(begin, following[1][1], Kind.RHYTHM, following[1][1])
