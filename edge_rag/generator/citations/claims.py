"""What a sentence may not get wrong: its numbers with their units, its names, whether it denies; pure.

Found by their form, so that nothing has to be understood: a unit is one of a list that follows a number, a name is a
word with a capital letter inside a sentence or one with both letters and digits. The words are English.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Final, NamedTuple

from edge_rag.generator.citations.fact_words import CONTRARIES, NEGATIONS, NUMBER_WORDS, UNITS

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
