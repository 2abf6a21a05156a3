"""Kinds of values, and what values look like in a language; data of ``values.toml``."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

from edge_rag.analysis.numbers import UNITS, Number

_DATA: Final[Mapping[str, Mapping[str, Any]]] = tomllib.loads((files(__package__) / "values.toml").read_text("utf-8"))

_SYMBOLS: Final = """
% ‰ ° °C °F degC degF km² km³ m² m³ cm² cm³ mm² km2 m2 m3 cm2 cm3 km/h m/s mm/s mph l/s l/h l/min mg/l µg/l µm
VA kVA MVA var Ω kΩ MΩ Ah mAh
"""
"""Units that are symbols, beside those of ``numbers``."""

_CURRENCIES: Final = frozenset(["€", "$", "£", "¥", "eur", "usd", "gbp", "chf"])
_SPAN_SYMBOLS: Final = frozenset(("s", "min", "h", "d", "ms"))
_SHARE_SYMBOLS: Final = frozenset(("%", "‰"))
_WORD: Final = re.compile(r"[^\W_]+(?:['’.-][^\W_]+)*")


class ValueKind(Enum):
    """The form of a value, or the kind of value that a question asks for.

    COUNT, AMOUNT: a number without and with a unit. SPAN: a duration. RHYTHM: a frequency. CELL, KEYED: in a table or
    after a colon. CHOICE: one of several texts. RUN: unclassified words.
    """

    COUNT = "count"
    AMOUNT = "amount"
    ORDINAL = "ordinal"
    SHARE = "share"
    SPAN = "span"
    RHYTHM = "rhythm"
    DATE = "date"
    YEAR = "year"
    DECADE = "decade"
    MONTH = "month"
    WEEKDAY = "weekday"
    TIME = "time"
    NAME = "name"
    CODE = "code"
    QUOTED = "quoted"
    CELL = "cell"
    KEYED = "keyed"
    CHOICE = "choice"
    RUN = "run"
    SENTENCE = "sentence"


@dataclass(frozen=True, slots=True)
class ValueWords:
    """Words of the values of one language, in lower case; all empty without data for it.

    Attributes:
        magnitudes: Exponents of ten of the words that multiply the number before them.
        date: A month with a day before or after it and a year; None without names of months.
        decades: A decade or a century; None without.
        range_conjunctions: Words that join the ends of a range after ``between`` ("and").
        origin: Words before the first of two values that are not a range ("from 20 to 30 hertz").
        bounds: Text before a date that only bounds a time; None without.
        of: Words between the parts of a date, and before the unit of millions.
        per: Words before the unit of a rate.
        every: Words before an interval of repetition.
    """

    numbers: Mapping[str, str]
    magnitudes: Mapping[str, int]
    months: Mapping[str, int]
    capital_months: bool
    date: re.Pattern[str] | None
    decades: re.Pattern[str] | None
    spaced_thousands: bool
    weekdays: frozenset[str]
    to: frozenset[str]
    range_conjunctions: frozenset[str]
    between: frozenset[str]
    origin: frozenset[str]
    bounds: re.Pattern[str] | None
    of: frozenset[str]
    per: frozenset[str]
    units: frozenset[str]
    spans: frozenset[str]
    shares: frozenset[str]
    every: frozenset[str]
    times: frozenset[str]
    regularly: frozenset[str]
    capital_nouns: bool
    money: frozenset[str]
    currencies: frozenset[str]
    particles: frozenset[str]

    def spelled_numbers(self, text: str) -> Iterator[Number]:
        """Yields the numbers written as words, such as "twelve", "twenty-one" and "six" in "six-time", in order."""
        for match in _WORD.finditer(text):
            ten, _, one = match[0].lower().partition("-")
            reading = self.numbers.get(match[0].lower())
            if reading is None and ten in self.numbers and one in self.numbers and self.numbers[ten].endswith("0"):
                reading = str(int(self.numbers[ten]) + int(self.numbers[one]))
            if reading is not None:
                yield Number(*match.span(), (reading,))
            elif one and ten in self.numbers:  # "six-time winner"
                yield Number(match.start(), match.start() + len(ten), (self.numbers[ten],))


@lru_cache(64)
def value_words(language: str) -> ValueWords:
    """Returns the words of a language, an ISO 639-1 code."""
    data = _DATA.get(language, {})

    def listed(key: str) -> list[str]:
        return str(data.get(key, "")).split()

    def given(key: str) -> frozenset[str]:
        return frozenset(listed(key))

    numbers = {word: str(value) for value, word in enumerate(listed("numbers"))}
    numbers |= {word: str(10 * value) for value, word in enumerate(listed("tens"), 3)}
    months = listed("months")
    symbols = UNITS.keys() | _SYMBOLS.lower().split()
    return ValueWords(
        numbers=numbers,
        magnitudes=dict(data.get("magnitudes", {})),
        months={month: number for number, month in enumerate(months, 1)},
        capital_months=bool(data.get("capital_months")),
        date=_date_pattern(months, listed("of")) if months else None,
        decades=re.compile(rf"(?<!\w)(?:{data['decades']})(?!\w)", re.IGNORECASE) if "decades" in data else None,
        spaced_thousands=bool(data.get("spaced_thousands")),
        weekdays=given("weekdays"),
        to=given("to"),
        range_conjunctions=given("and"),
        between=given("between"),
        origin=given("from"),
        bounds=re.compile(rf"(?<!\w)(?:{data['bounds']})\s$", re.IGNORECASE) if "bounds" in data else None,
        of=given("of"),
        per=given("per"),
        units=given("units") | given("currencies") | _CURRENCIES | given("spans") | given("shares") | symbols,
        spans=given("spans") | _SPAN_SYMBOLS,
        shares=given("shares") | _SHARE_SYMBOLS,
        every=given("every"),
        times=given("times"),
        regularly=given("regularly"),
        capital_nouns=bool(data.get("capital_nouns")),
        money=given("money"),
        currencies=given("currencies") | _CURRENCIES,
        particles=given("particles"),
    )


def _date_pattern(months: list[str], of: list[str]) -> re.Pattern[str]:
    names = "|".join(map(re.escape, sorted(months, key=len, reverse=True)))
    joint = rf"\s+(?:(?:{'|'.join(map(re.escape, of))})\s+){{0,2}}" if of else r"\s+"
    return re.compile(
        rf"(?<![\w.])(?:(?P<day>[0-3]?\d)(?:st|nd|rd|th|er|º|\.)?{joint})?(?P<month>{names})(?!\w)"
        rf"(?:\s+(?P<later>[0-3]?\d)(?:st|nd|rd|th)?(?!\d|[.,]\d))?(?:,?{joint}(?P<year>[12]\d{{3}})(?!\d))?",
        re.IGNORECASE,
    )
