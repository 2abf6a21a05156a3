"""Says the same in other words, roughly: dropped words, other endings, neighbours in the embedder's vocabulary."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

_ENDINGS: Final = (
    ("ations", "ate"), ("ation", "ate"), ("izing", "ize"), ("ities", "ity"), ("ments", "ment"), ("ings", "ing"),
    ("ness", ""), ("ing", ""), ("ies", "y"), ("ers", "er"), ("ed", ""), ("ly", ""), ("es", ""), ("s", ""),
)  # fmt: skip
_ADDED: Final = ("s", "ed", "ing", "er")
_PLAIN = re.compile(r"[a-z]{4,}")
_NEIGHBOURS: Final = 4
_LEAST_COSINE: Final = 0.5
_ROWS_AT_ONCE: Final = 2_000


@dataclass(frozen=True, slots=True)
class Rates:
    """How often a word is changed, 0 to 1 each.

    Attributes:
        drop: Left out.
        inflect: Given another ending.
        replace: Replaced by a word that is used alike.
    """

    drop: float = 0.15
    inflect: float = 0.2
    replace: float = 0.1


class Paraphraser:
    """Changes words at random.

    Args:
        alike: Words that are used like a word.
        rates: How often.
    """

    def __init__(self, alike: Mapping[str, Sequence[str]], rates: Rates) -> None:
        self._alike = alike
        self._rates = rates

    def change(self, words: Sequence[str], chance: random.Random) -> list[str]:
        """Returns the words with changes; at least half of them, so that something is left to ask about."""
        kept = [word for word in words if chance.random() >= self._rates.drop]
        return [self._word(word, chance) for word in (kept if 2 * len(kept) >= len(words) else words)]

    def _word(self, word: str, chance: random.Random) -> str:
        drawn = chance.random()
        if drawn < self._rates.replace:
            others = self._alike.get(word.lower())
            return chance.choice(others) if others else word
        if drawn < self._rates.replace + self._rates.inflect and _PLAIN.fullmatch(word):
            return inflect(word, chance)
        return word


def inflect(word: str, chance: random.Random) -> str:
    """Returns a lower-case word with an ending less, or with one more if it has none."""
    for ending, instead in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)] + instead
    return word + chance.choice(_ADDED)


def words_alike(vocabulary: Sequence[str], vectors: NDArray[np.float32]) -> dict[str, tuple[str, ...]]:
    """Finds for each plain word of a vocabulary the words whose input embeddings are nearest, its own forms included.

    Args:
        vocabulary: Tokens, one a row of ``vectors``.
        vectors: float32 [tokens, dimension], any length.

    Returns:
        Up to four words each, of a cosine of at least 0.5; words without any are left out.
    """
    rows = [row for row, token in enumerate(vocabulary) if _PLAIN.fullmatch(token)]
    words = [vocabulary[row] for row in rows]
    unit = vectors[rows] / np.linalg.norm(vectors[rows], axis=1, keepdims=True)
    found: dict[str, tuple[str, ...]] = {}
    for first in range(0, len(words), _ROWS_AT_ONCE):
        cosines = unit[first : first + _ROWS_AT_ONCE] @ unit.T
        cosines[np.arange(len(cosines)), first + np.arange(len(cosines))] = -1.0
        count = min(_NEIGHBOURS, len(words))
        best = np.argpartition(-cosines, count - 1, axis=1)[:, :count]
        for row, columns in enumerate(best):
            near = tuple(words[column] for column in columns if cosines[row, column] >= _LEAST_COSINE)
            if near:
                found[words[first + row]] = near
    return found
