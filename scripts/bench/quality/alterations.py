"""Sentences of passages, altered: in ways that keep what they say, and in ways that do not; pure."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

_NUMBER = re.compile(r"\d+")
_VERB = re.compile(r"\b(?:is|was|were|are|had|has|can|will|must)\b")
_NAME = re.compile(r"[A-Z][a-z]{3,}")
_WORD = re.compile(r"[a-z]{5,}")
_NAMES = ("Hamburg", "Peterson", "Nairobi", "Siemens")
_WORDS = ("furnish", "obtain", "quickly", "garment", "regarded", "yonder", "ripple")

Alteration = Callable[[str, random.Random], str | None]
"""Returns the altered sentence, or None where there is nothing to alter."""


def itself(sentence: str, chance: random.Random) -> str | None:
    """Alters nothing."""
    return sentence


def shortened(sentence: str, chance: random.Random) -> str | None:
    """Leaves out a fifth of the words, never the first."""
    return " ".join(word for place, word in enumerate(sentence.split()) if place == 0 or chance.random() > 0.2)


def reworded(sentence: str, chance: random.Random) -> str | None:
    """Replaces every eighth word by another, as a paraphrase would."""
    words = sentence.split()
    places = [place for place in range(1, len(words)) if _WORD.fullmatch(words[place])]
    for place in chance.sample(places, min(len(places), max(1, len(words) // 8))):
        words[place] = chance.choice(_WORDS)
    return " ".join(words) if places else None


def miscounted(sentence: str, chance: random.Random) -> str | None:
    """Changes a number."""
    numbers = list(_NUMBER.finditer(sentence))
    if not numbers:
        return None
    number = chance.choice(numbers)
    return f"{sentence[: number.start()]}{int(number[0]) + chance.choice((1, 3, 10))}{sentence[number.end() :]}"


def denied(sentence: str, chance: random.Random) -> str | None:
    """Puts a negation in."""
    verb = _VERB.search(sentence)
    return None if verb is None else f"{sentence[: verb.end()]} not{sentence[verb.end() :]}"


def renamed(sentence: str, chance: random.Random) -> str | None:
    """Replaces a name inside the sentence."""
    words = sentence.split()
    places = [place for place in range(1, len(words)) if _NAME.match(words[place])]
    if not places:
        return None
    words[chance.choice(places)] = chance.choice(_NAMES)
    return " ".join(words)


def spliced(one: str, other: str) -> str | None:
    """Joins the first half of one sentence to the second half of another."""
    first, second = one.split(), other.split()
    if min(len(first), len(second)) <= 8:
        return None
    return " ".join((*first[: len(first) // 2], *second[len(second) // 2 :]))


SAME: Sequence[tuple[str, Alteration]] = (
    ("itself", itself),
    ("a fifth of its words left out", shortened),
    ("every eighth word replaced", reworded),
)
"""What keeps saying what the sentence says, or nearly."""

OTHER: Sequence[tuple[str, Alteration]] = (
    ("a number changed", miscounted),
    ("a negation put in", denied),
    ("a name replaced", renamed),
)
"""What does not."""
