"""What values look like in a language, and how questions ask for them; data of ``words.toml``."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

from edge_rag.analysis.numbers import UNITS

_DATA: Final[Mapping[str, Mapping[str, Any]]] = tomllib.loads((files(__package__) / "words.toml").read_text("utf-8"))

_SYMBOLS: Final = """
% ‰ ° °C °F € $ £ ¥ km² km³ m² m³ cm² cm³ mm² km2 m2 m3 cm2 cm3 km/h m/s mm/s mph l/s l/h l/min mg/l µg/l µm
VA kVA MVA var Ω kΩ MΩ Ah mAh
"""
"""Units that are symbols, beside those of ``analysis.numbers``."""

_SPAN_SYMBOLS: Final = frozenset(("s", "min", "h", "d", "ms"))
_SHARE_SYMBOLS: Final = frozenset(("%", "‰"))

_COUNTED_WORDS: Final = 3
"""Words after a phrase such as "how many" among which is what is counted."""


class Ask(Enum):
    """What a question or a field asks for."""

    COUNT = "count"
    AMOUNT = "amount"
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
    SENTENCE = "sentence"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a text asks for.

    Attributes:
        ask: The kind of value.
        after: The first words after the phrase that says so: what is counted.
    """

    ask: Ask
    after: str


@dataclass(frozen=True, slots=True)
class Words:
    """Words of one language, in lower case; none of a language without data.

    Attributes:
        numbers: Numbers by their words, as decimal digits.
        magnitudes: Powers of ten by the words that multiply a number before them.
        months: 1 to 12 by name.
        capital_months: Whether their names begin with a capital letter.
        date: A month, with the day before or behind it and the year; None without names of months.
        weekdays: Names of the days.
        to: What stands between the ends of a range.
        conjoined: What does so after one of ``between``.
        between: What may stand before a range.
        origin: What stands before the first of two values that are no range ("from 20 to 30 hertz").
        of: What may stand between the parts of a date.
        per: What stands before the unit that a rate is for.
        units: Names and symbols of units.
        spans: Those of time.
        shares: Those of shares of a whole.
        every: What stands before the time after which something repeats.
        times: What says how many times.
        regularly: Words that alone tell how often.
        particles: What may stand inside a name.
        asks: What asks for each kind of value.
    """

    numbers: Mapping[str, str]
    magnitudes: Mapping[str, int]
    months: Mapping[str, int]
    capital_months: bool
    date: re.Pattern[str] | None
    weekdays: frozenset[str]
    to: frozenset[str]
    conjoined: frozenset[str]
    between: frozenset[str]
    origin: frozenset[str]
    of: frozenset[str]
    per: frozenset[str]
    units: frozenset[str]
    spans: frozenset[str]
    shares: frozenset[str]
    every: frozenset[str]
    times: frozenset[str]
    regularly: frozenset[str]
    particles: frozenset[str]
    asks: Mapping[Ask, re.Pattern[str]]

    def asked(self, text: str) -> Asked | None:
        """Returns what a question or the words of a field ask for first, by the longest phrase; None if none tells."""
        lower = text.lower()
        found = [(match, ask) for ask, pattern in self.asks.items() if (match := pattern.search(lower)) is not None]
        if not found:
            return None
        match, ask = min(found, key=lambda each: (each[0].start(), -each[0].end()))
        return Asked(ask, " ".join(lower[match.end() :].split()[:_COUNTED_WORDS]))


def _set(data: Mapping[str, Any], key: str) -> frozenset[str]:
    return frozenset(str(data.get(key, "")).split())


@lru_cache(64)
def words_of(language: str) -> Words:
    """Returns the words of a language, an ISO 639-1 code."""
    data = _DATA.get(language, {})
    numbers = {word: str(value) for value, word in enumerate(str(data.get("numbers", "")).split())}
    numbers |= {word: str(10 * value) for value, word in enumerate(str(data.get("tens", "")).split(), 3)}
    months = str(data.get("months", "")).split()
    return Words(
        numbers,
        dict(data.get("magnitudes", {})),
        {month: number for number, month in enumerate(months, 1)},
        bool(data.get("capital_months")),
        _date_pattern(months, str(data.get("of", "")).split()) if months else None,
        _set(data, "weekdays"),
        _set(data, "to"),
        _set(data, "and"),
        _set(data, "between"),
        _set(data, "from"),
        _set(data, "of"),
        _set(data, "per"),
        _set(data, "units")
        | _set(data, "spans")
        | _set(data, "shares")
        | UNITS.keys()
        | frozenset(_SYMBOLS.lower().split()),
        _set(data, "spans") | _SPAN_SYMBOLS,
        _set(data, "shares") | _SHARE_SYMBOLS,
        _set(data, "every"),
        _set(data, "times"),
        _set(data, "regularly"),
        _set(data, "particles"),
        {Ask(name): _phrases(phrases, name == "year") for name, phrases in data.get("asks", {}).items()},
    )


def _date_pattern(months: list[str], of: list[str]) -> re.Pattern[str]:
    names = "|".join(map(re.escape, sorted(months, key=len, reverse=True)))
    joint = rf"\s+(?:(?:{'|'.join(map(re.escape, of))})\s+){{0,2}}" if of else r"\s+"
    return re.compile(
        rf"(?<![\w.])(?:(?P<day>[0-3]?\d)(?:st|nd|rd|th|er|º|\.)?{joint})?(?P<month>{names})(?!\w)"
        rf"(?:\s+(?P<later>[0-3]?\d)(?:st|nd|rd|th)?(?!\d|[.,]\d))?(?:,?{joint}(?P<year>[12]\d{{3}})(?!\d))?",
        re.IGNORECASE,
    )


def _phrases(phrases: list[str], is_year: bool) -> re.Pattern[str]:
    longest_first = sorted(phrases, key=len, reverse=True)
    alternatives = (re.escape(phrase).replace(r"\*", r"\w*").replace(r"\ ", r"\W+") for phrase in longest_first)
    ending = r"|\W*\d" if is_year else ""  # "in the year 2000" asks for none
    return re.compile(rf"(?<!\w)(?:{'|'.join(alternatives)})(?!\w{ending})")
