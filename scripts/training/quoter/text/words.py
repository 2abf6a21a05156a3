"""Words: which carry meaning, how rare they are, where they occur."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import snowballstemmer

_FUNCTION_WORDS = """
    a about above after again all also among an and any are as at be because been before being between both but by
    can could did do does during each few for from had has have he her his how i if in into is it its just like made
    many may might more most much must no nor not of off on one only or other our out over own same shall she should
    since so some such than that the their them then there these they this those through to under until up upon us use
    used using very was we were what when where whether which while who whom whose why will with within without would
    yet you your
"""
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
_CORE = re.compile(r"[^\W_](?:[^\W_]|[-'’](?=[^\W_]))*")
_RAREST_LINK, _COMMONEST_LINK = 2, 300


def core(word: str) -> str:
    """Returns a word without the punctuation around it; empty where it is nothing else."""
    found = _CORE.search(word)
    return found.group() if found else ""


def is_content(word: str) -> bool:
    """Whether a word, punctuation allowed, is one that a question would be recognized by."""
    bare = core(word).lower()
    return bool(bare) and bare not in FUNCTION_WORDS


class Lexicon:
    """Stems, their document frequencies, and the paragraphs they occur in.

    Args:
        paragraphs: What is counted, and found again by ``relatives``.
    """

    def __init__(self, paragraphs: Sequence[tuple[tuple[str, ...], ...]]) -> None:
        self._stemmer = snowballstemmer.stemmer("english")
        self._stems: dict[str, str] = {}
        self._documents = len(paragraphs)
        self._frequency: Counter[str] = Counter()
        self._places: defaultdict[str, list[int]] = defaultdict(list)
        words: set[str] = set()
        for index, paragraph in enumerate(paragraphs):
            stems = list(dict.fromkeys(self.stem(word) for sentence in paragraph for word in sentence))
            self._frequency.update(stems)
            for stem in stems:
                self._places[stem].append(index)
            if index % 3 == 0:
                words.update(core(word) for sentence in paragraph for word in sentence)
        for stem in [s for s, places in self._places.items() if not _RAREST_LINK <= len(places) <= _COMMONEST_LINK]:
            del self._places[stem]
        self.vocabulary = sorted(word for word in words if len(word) > 2)

    def stem(self, word: str) -> str:
        """Returns the stem of a word's core, lower case."""
        known = self._stems.get(word)
        if known is None:
            known = self._stems[word] = self._stemmer.stemWord(core(word).lower())
        return known

    def stems(self, words: Iterable[str]) -> set[str]:
        """Returns the stems of the content words among these."""
        return {self.stem(word) for word in words if is_content(word)}

    def rarity(self, stem: str) -> float:
        """Returns a stem's inverse document frequency, nats, at least 0."""
        return max(0.0, math.log(self._documents / (1 + self._frequency.get(stem, 0))))

    def weight(self, stems: Iterable[str]) -> float:
        """Returns the summed rarity of some stems."""
        return sum(self.rarity(stem) for stem in stems)

    def relatives(self, stem: str) -> Sequence[int]:
        """Returns which paragraphs share a stem that is neither rare nor common; none for another."""
        return self._places.get(stem, ())
