"""Extracts the checkable claims of a sentence: numbers with units, names, negations, antonyms; pure.

Claims are recognized by their form: a unit is a listed word after a number; a name is a capitalized word inside a
sentence, or a word with both letters and digits. The word lists are English.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Final, NamedTuple

from edge_rag.analysis import numbers
from edge_rag.analysis.values import value_words

_UNIT_NAMES = """
s sec secs second seconds
min mins minute minutes
h hr hrs hour hours
day days
week weeks
month months
year years
mm millimetre millimetres millimeter millimeters
cm centimetre centimetres centimeter centimeters
m metre metres meter meters
km kilometre kilometres kilometer kilometers
ft foot feet
mile miles
mg milligram milligrams
g gram grams gramme grammes
kg kilogram kilograms kilo kilos
t tonne tonnes ton tons
ml millilitre millilitres milliliter milliliters
l L litre litres liter liters
bar bars
mbar millibar
Pa pascal pascals
kPa kilopascal kilopascals
MPa megapascal megapascals
psi
°C °c degC Celsius celsius
°F Fahrenheit fahrenheit
V volt volts
kV kilovolt kilovolts
A amp amps ampere amperes
mA milliamp milliamps milliampere milliamperes
W watt watts
kW kilowatt kilowatts
MW megawatt megawatts
Hz hertz
kHz kilohertz
rpm
Nm
dB decibel decibels
% percent
ppm
€ euro euros
$ dollar dollars
£ pound pounds
"""
_NEGATION_WORDS = """
not no never none nobody nothing nowhere neither nor without cannot except unless hardly
"""
_ANTONYM_PAIRS = """
above/below over/under before/after more/less most/least maximum/minimum higher/lower open/close opened/closed
increase/decrease increases/decreases left/right on/off first/last start/stop started/stopped always/sometimes all/some
upper/lower hot/cold wet/dry full/empty north/south east/west
"""

NUMBER_WORDS: Final = value_words("en").numbers
"""Digits of number words, lower case."""

_LATIN_UNITS: Final = {name: line.split()[0] for line in _UNIT_NAMES.strip().splitlines() for name in line.split()}
_NAMES_OF_SYMBOLS: Final = {name.lower(): name for name in _LATIN_UNITS.values()}

UNITS: Final = _LATIN_UNITS | {
    spelling: _NAMES_OF_SYMBOLS[symbol]
    for spelling, symbol in numbers.UNITS.items()
    if not spelling.isascii() and symbol in _NAMES_OF_SYMBOLS
}
"""Canonical name of a unit, by each of its spellings."""

NEGATIONS: Final = frozenset(_NEGATION_WORDS.split())
"""Negating words, lower case, without contractions."""

ANTONYMS: Final = tuple((pair.split("/")[0], pair.split("/")[1]) for pair in _ANTONYM_PAIRS.split())
"""Pairs of words with opposite meaning, lower case."""


_TOKEN: Final = re.compile(r"(?:(?<=[\s(])|^)[-−](?=$|\d)|[^\W_]+|[%°µ]+[^\W\d_]*|€|\$|£")
_CONTRACTED: Final = re.compile(r"n['’]t\b", re.IGNORECASE)
_UNIT_REACH: Final = 3
"""Distance, in words, at which a unit after a number is found in a supporting text."""

_CLAIM_UNIT_REACH: Final = 2
"""The same in the claim: 2,000 operating hours."""


class _Token(NamedTuple):
    """A word, sign or number of a text, with its readings if it is a number."""

    text: str
    readings: tuple[str, ...]
    start: int
    end: int


class Quantity(NamedTuple):
    """A normalized number.

    Attributes:
        unit: Canonical name of its unit, or empty.
    """

    number: str
    unit: str


@dataclass(frozen=True, slots=True)
class Measure:
    """A number of a text as it is written.

    Attributes:
        unit: Canonical name of the unit that follows it, or empty.
        before: The word before it, lower case; empty at the beginning.
        after: The word after it, lower case; empty at the end.
        text: The number with its unit, without the word after it.
        counted: The same with the word after it.
    """

    readings: frozenset[str]
    unit: str
    before: str
    after: str
    text: str
    counted: str


@dataclass(frozen=True, slots=True)
class Claims:
    """Checkable claims of a text.

    Attributes:
        quantities: Its numbers with the unit that follows them, each as its readings, one of which must be supported.
        loose: Its numbers by all of their readings, each with every unit among the next few words, and without a unit.
    """

    quantities: frozenset[frozenset[Quantity]]
    loose: frozenset[Quantity]
    names: frozenset[str]
    words: frozenset[str]
    negations: int

    def supported_by(self, support: Claims, headings: frozenset[str] = frozenset()) -> bool:
        return self.has_no_number_but(support.loose) and self.agrees_but_for_numbers(support, headings)

    def agrees_but_for_numbers(self, support: Claims, headings: frozenset[str] = frozenset()) -> bool:
        return (
            self.names <= support.words | headings
            and self.negations == support.negations
            and not any(_contradicts(self.words, support.words, one, other) for one, other in ANTONYMS)
        )

    def has_no_number_but(self, loose: frozenset[Quantity]) -> bool:
        return not any(readings.isdisjoint(loose) for readings in self.quantities)

    def joined(self, other: Claims) -> Claims:
        """Returns the claims of two texts together."""
        return Claims(
            self.quantities | other.quantities,
            self.loose | other.loose,
            self.names | other.names,
            self.words | other.words,
            self.negations + other.negations,
        )


def claims_of(text: str, mark: str = "") -> Claims:
    """Extracts the claims of one or several sentences.

    Args:
        mark: The character before fractions in their numbers, if known (``numbers.decimal_mark``).
    """
    found = _tokens(unicodedata.normalize("NFC", text), mark)
    quantities: set[frozenset[Quantity]] = set()
    loose: set[Quantity] = set()
    names: set[str] = set()
    for place, token in enumerate(found):
        if not token.readings:
            if _is_name(token.text, place):
                names.add(token.text.lower())
            continue
        readings = _signed(found, place)
        following = found[place + 1 : place + 1 + _UNIT_REACH]
        before = _currency(found, place)
        units = {"", before, *(UNITS[word.text] for word in following if word.text in UNITS)}
        loose |= {Quantity(number, unit) for number in readings for unit in units}
        if token.text.lower() != "one":
            unit, _ = _unit_of(found, place)
            quantities.add(frozenset(Quantity(number, unit) for number in readings))
    words = frozenset(token.text.lower() for token in found)
    negations = sum(token.text.lower() in NEGATIONS for token in found) + len(_CONTRACTED.findall(text))
    return Claims(frozenset(quantities), frozenset(loose), frozenset(names), words, negations)


def measures_of(text: str, mark: str = "") -> list[Measure]:
    """Returns the numbers of one or several sentences in order; arguments as of ``claims_of``."""
    text = unicodedata.normalize("NFC", text)
    found = _tokens(text, mark)
    measures = []
    for place, token in enumerate(found):
        if not token.readings or token.text.lower() == "one":
            continue
        unit, last = _unit_of(found, place)
        signed = place and (_currency(found, place) or _sign(found, place))
        start = found[place - 1 if signed else place].start
        end = found[last].end
        after = found[place + 1] if place + 1 < len(found) else None
        measures.append(
            Measure(
                frozenset(_signed(found, place)),
                unit,
                found[place - 1].text.lower() if place else "",
                "" if after is None else after.text.lower(),
                text[start:end],
                text[start : end if unit or after is None else after.end],
            )
        )
    return measures


def _signed(found: list[_Token], place: int) -> list[str]:
    return [f"{_sign(found, place)}{number}" for number in found[place].readings]


def _sign(found: list[_Token], place: int) -> str:
    return "-" if place and found[place - 1].text in "-−" else ""


def _currency(found: list[_Token], place: int) -> str:
    return UNITS.get(found[place - 1].text, "") if place and found[place - 1].text in "€$£" else ""


def _unit_of(found: list[_Token], place: int) -> tuple[str, int]:
    """Returns the unit that a claim's number has, or nothing, and the last token of both."""
    if before := _currency(found, place):
        return before, place
    following = range(place + 1, min(len(found), place + 1 + _CLAIM_UNIT_REACH))
    return next(((UNITS[found[at].text], at) for at in following if found[at].text in UNITS), ("", place))


def _tokens(text: str, mark: str) -> list[_Token]:
    """Returns the words, signs and numbers of a text in order."""
    tokens: list[_Token] = []
    past = 0
    for number in numbers.normal_numbers(text, mark):
        tokens += _words(text, past, number.start)
        tokens.append(_Token(text[number.start : number.end], number.readings, number.start, number.end))
        past = number.end
    return tokens + _words(text, past, len(text))


def _words(text: str, start: int, end: int) -> list[_Token]:
    return [
        _Token(word, (NUMBER_WORDS[word.lower()],) if word.lower() in NUMBER_WORDS else (), match.start(), match.end())
        for match in _TOKEN.finditer(text, start, end)
        for word in (match[0],)
    ]


def _is_name(token: str, place: int) -> bool:
    if token[0] in "%°µ€$£-−" or token in UNITS or token == "I":
        return False
    mixed = any(character.isdigit() for character in token) or any(character.isupper() for character in token[1:])
    return mixed or (token[0].isupper() and place > 0 and token.lower() not in NUMBER_WORDS)


def _contradicts(claim: frozenset[str], support: frozenset[str], one: str, other: str) -> bool:
    """Whether a claim contains one of two antonyms, and its support only the other."""
    return (one in claim and one not in support and other in support) or (
        other in claim and other not in support and one in support
    )
