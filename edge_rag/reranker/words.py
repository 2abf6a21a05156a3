"""Words and their stems, as passages and questions are compared by them."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache

import snowballstemmer

_WORD = re.compile(r"[^\W_]+")
_STEMS_KEPT = 65_536


def words_of(text: str) -> list[str]:
    """Returns every word (a run of letters and digits) of a text in lower case, in order."""
    return [word.lower() for word in _WORD.findall(unicodedata.normalize("NFC", text))]


class Stemmer:
    """Cuts words to their stems with the Snowball stemmer for English. For one thread at a time."""

    def __init__(self) -> None:
        # Snowball in pure Python costs more than everything else that is done with a word, and words repeat.
        self._stem = lru_cache(_STEMS_KEPT)(snowballstemmer.stemmer("english").stemWord)

    def stems(self, text: str) -> list[str]:
        """Returns the stem of every word of a text, in order."""
        return [self._stem(word) for word in words_of(text)]

    def stems_among(self, words: Iterable[str], wanted: Collection[str]) -> set[str]:
        """Returns which of the wanted stems words have.

        A stem begins as its word does, so most words of a passage need no stemming to be told from a question's.
        """
        initials = {stem[:1] for stem in wanted}
        return {stem for word in words if word[0] in initials and (stem := self._stem(word)) in wanted}

    def counts_among(self, counts: Mapping[str, int], wanted: Collection[str]) -> Counter[str]:
        """Returns how often words have each of the wanted stems.

        Args:
            counts: How often each word occurs.
            wanted: Stems.
        """
        initials = {stem[:1] for stem in wanted}
        found: Counter[str] = Counter()
        for word, count in counts.items():
            if word[0] in initials and (stem := self._stem(word)) in wanted:
                found[stem] += count
        return found

    def weights(self, term_weights: Mapping[str, float]) -> dict[str, float]:
        """Returns the weight of each stem among weighted words; words of one stem count once, with the largest."""
        weights: dict[str, float] = {}
        for word, weight in term_weights.items():
            for stem in self.stems(word):
                weights[stem] = max(weight, weights.get(stem, 0.0))
        return weights
