"""What a sentence may not get wrong: its numbers with their units, its names, whether it denies; pure.

Found by their form, so that nothing has to be understood: a unit is one of a list that follows a number, a name is a
word with a capital letter inside a sentence or one with both letters and digits. The words are English.

English words that can be checked by their form: numbers, units, negations, contraries.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Final, NamedTuple

_SMALL_NUMBERS = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
nineteen twenty
"""
_TENS = """
thirty forty fifty sixty seventy eighty ninety
"""
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
_CONTRARY_PAIRS = """
above/below over/under before/after more/less most/least maximum/minimum higher/lower open/close opened/closed
increase/decrease increases/decreases left/right on/off first/last start/stop started/stopped always/sometimes all/some
upper/lower hot/cold wet/dry full/empty north/south east/west
"""

NUMBER_WORDS: Final = {word: str(number) for number, word in enumerate(_SMALL_NUMBERS.split())} | {
    word: str(10 * number) for number, word in enumerate(_TENS.split(), 3)
}
"""The digits of a number that is one word, lower case."""

UNITS: Final = {name: line.split()[0] for line in _UNIT_NAMES.strip().splitlines() for name in line.split()}
"""The first name of a unit, by each of its names as they are written."""

NEGATIONS: Final = frozenset(_NEGATION_WORDS.split())
"""Words that turn what is said, lower case; without the contracted ones."""

CONTRARIES: Final = tuple((pair.split("/")[0], pair.split("/")[1]) for pair in _CONTRARY_PAIRS.split())
"""Pairs of words of which one says the contrary of the other, lower case."""


_TOKEN: Final = re.compile(r"(?:(?<=[\s(])|^)[-−](?=\d)|\d+(?:[,.]\d+)*|[^\W\d_][^\W_]*|[%°µ]+[^\W\d_]*|€|\$|£")
_THOUSANDS: Final = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_CONTRACTED: Final = re.compile(r"n['’]t\b", re.IGNORECASE)
_UNIT_REACH: Final = 3
"""Words after a number among which its unit is looked for in a text that supports a sentence."""

_OWN_UNIT_REACH: Final = 2
"""Likewise in the sentence: 2,000 operating hours."""


class Quantity(NamedTuple):
    """A number as it is compared.

    Attributes:
        number: Without separators and trailing zeros, with its sign.
        unit: The unit's first name in the list, or nothing.
    """

    number: str
    unit: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What a text says that can be checked by its form.

    Attributes:
        quantities: Its numbers, each with the unit that follows it.
        loose: Its numbers, each with every unit among the next few words, and without one.
        names: Its names, lower case.
        words: All its words, lower case.
        negations: How many negations it holds.
    """

    quantities: frozenset[Quantity]
    loose: frozenset[Quantity]
    names: frozenset[str]
    words: frozenset[str]
    negations: int

    def agrees_with(self, support: Facts) -> bool:
        """Returns whether a supporting text says all of these facts, and nothing to the contrary."""
        return (
            self.quantities <= support.loose
            and self.names <= support.words
            and self.negations == support.negations
            and not any(_turned(self.words, support.words, one, other) for one, other in CONTRARIES)
        )

    def joined(self, other: Facts) -> Facts:
        """Returns the facts of two texts together."""
        return Facts(
            self.quantities | other.quantities,
            self.loose | other.loose,
            self.names | other.names,
            self.words | other.words,
            self.negations + other.negations,
        )


def facts_of(text: str) -> Facts:
    """Finds the facts of a sentence, or of several."""
    tokens = [match.group() for match in _TOKEN.finditer(unicodedata.normalize("NFC", text))]
    quantities: set[Quantity] = set()
    loose: set[Quantity] = set()
    names: set[str] = set()
    for place, token in enumerate(tokens):
        number = _number(token)
        if number is None:
            if _is_name(token, place, tokens):
                names.add(token.lower())
            continue
        if place and tokens[place - 1] in "-−":
            number = f"-{number}"
        following = tokens[place + 1 : place + 1 + _UNIT_REACH]
        before = UNITS.get(tokens[place - 1], "") if place and tokens[place - 1] in "€$£" else ""
        loose |= {Quantity(number, ""), Quantity(number, before)}
        loose |= {Quantity(number, UNITS[word]) for word in following if word in UNITS}
        if token.lower() != "one":
            near = (UNITS[word] for word in following[:_OWN_UNIT_REACH] if word in UNITS)
            quantities.add(Quantity(number, before or next(near, "")))
    words = frozenset(token.lower() for token in tokens)
    negations = sum(token.lower() in NEGATIONS for token in tokens) + len(_CONTRACTED.findall(text))
    return Facts(frozenset(quantities), frozenset(loose), frozenset(names), words, negations)


def _number(token: str) -> str | None:
    if not token[0].isdigit():
        return NUMBER_WORDS.get(token.lower())
    if _THOUSANDS.fullmatch(token):
        token = token.replace(",", "")
    whole, dot, fraction = token.replace(",", ".").partition(".")
    fraction = fraction.rstrip("0") if "." not in fraction else fraction
    return f"{whole.lstrip('0') or '0'}{dot if fraction else ''}{fraction}"


def _is_name(token: str, place: int, tokens: list[str]) -> bool:
    if token[0] in "%°µ€$£-−" or token in UNITS or token == "I":
        return False
    mixed = any(character.isdigit() for character in token) or any(character.isupper() for character in token[1:])
    return mixed or (token[0].isupper() and place > 0 and token.lower() not in NUMBER_WORDS)


def _turned(said: frozenset[str], support: frozenset[str], one: str, other: str) -> bool:
    """Returns whether a sentence holds one of two contrary words, and its support only the other."""
    return (one in said and one not in support and other in support) or (
        other in said and other not in support and one in support
    )
