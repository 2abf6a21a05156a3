"""Words and their stems, as passages and questions are compared by them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from functools import lru_cache

import snowballstemmer

_WORD = re.compile(r"[^\W_]+")
_STEMS_KEPT = 65_536


class Stemmer:
    """Cuts words to their stems with the Snowball stemmer for English. For one thread at a time."""

    def __init__(self) -> None:
        # Snowball in pure Python costs more than everything else that is done with a word, and words repeat.
        self._stem = lru_cache(_STEMS_KEPT)(snowballstemmer.stemmer("english").stemWord)

    def stems(self, text: str) -> list[str]:
        """Returns the stem of every word (a run of letters and digits) of a text, in order."""
        return [self._stem(word.lower()) for word in _WORD.findall(unicodedata.normalize("NFC", text))]

    def stems_among(self, text: str, wanted: Iterable[str]) -> list[str]:
        """Returns what ``stems`` does, with every word left as it is whose stem can't be a wanted one.

        A stem begins as its word does, so most words of a passage need no stemming to be told from a question's.
        """
        initials = {stem[:1] for stem in wanted}
        words = (word.lower() for word in _WORD.findall(unicodedata.normalize("NFC", text)))
        return [self._stem(word) if word[0] in initials else word for word in words]

    def weights(self, term_weights: Mapping[str, float]) -> dict[str, float]:
        """Returns the weight of each stem among weighted words; words of one stem count once, with the largest."""
        weights: dict[str, float] = {}
        for word, weight in term_weights.items():
            for stem in self.stems(word):
                weights[stem] = max(weight, weights.get(stem, 0.0))
        return weights
