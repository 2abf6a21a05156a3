"""Words and stems for the comparison of passages and questions."""

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
    """The Snowball stemmer for English. For one thread at a time."""

    def __init__(self) -> None:
        # Snowball in pure Python dominates the cost of processing a word, and words repeat.
        self._stem = lru_cache(_STEMS_KEPT)(snowballstemmer.stemmer("english").stemWord)

    def stems(self, text: str) -> list[str]:
        """Returns the stem of every word of a text, in order."""
        return [self._stem(word) for word in words_of(text)]

    def stems_among(self, words: Iterable[str], targets: Collection[str]) -> set[str]:
        """Returns the given stems that occur among words.

        A stem has the first letter of its word, so most words of a passage are rejected without stemming.
        """
        initials = {stem[:1] for stem in targets}
        return {stem for word in words if word[0] in initials and (stem := self._stem(word)) in targets}

    def counts_among(self, counts: Mapping[str, int], targets: Collection[str]) -> Counter[str]:
        """Returns the occurrences of the given stems.

        Args:
            counts: Occurrences of each word.
            targets: Stems.
        """
        initials = {stem[:1] for stem in targets}
        found: Counter[str] = Counter()
        for word, count in counts.items():
            if word[0] in initials and (stem := self._stem(word)) in targets:
                found[stem] += count
        return found

    def weights(self, term_weights: Mapping[str, float]) -> dict[str, float]:
        """Returns the weight of each stem among weighted words; of words with the same stem the largest."""
        weights: dict[str, float] = {}
        for word, weight in term_weights.items():
            for stem in self.stems(word):
                weights[stem] = max(weight, weights.get(stem, 0.0))
        return weights
