"""The words of collections in memory, to find those near to a misspelled one.

They are read at the first question with an unknown word; later reads add new words. For each word, memory has its
letters without accents, its length, and a signature: one bit for each letter modulo 64. An edit changes the length by
at most one and the signature by two bits, so few distances are computed. Candidates are checked against the table of
words, which removes deleted ones.

200,000 words take 0.7 s to read, 18 MB, and 2 ms for each misspelled word (one x86-64 core). A table of deletions as in
SymSpell takes 0.8 ms a word and 540 MB.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edge_rag.analysis.terms import plain_letters
from edge_rag.core.ports import Embedder
from edge_rag.retriever.bm25 import Bm25Index
from edge_rag.retriever.wordings.edits import distances, distances_of_beginnings
from edge_rag.retriever.wordings.spelling import Near
from edge_rag.storage.database import Database

MAX_WORDS: Final = 250_000
"""Most words of a collection in memory, the most frequent ones; about 130 bytes each."""

MAX_ALL_WORDS: Final = 500_000
"""Most words of all collections in memory; the least recently used collection is dropped first."""

_MOST_NEAR: Final = 64
"""Most words near to one that are looked up, the nearest and most frequent ones."""

_MOST_FORMS: Final = 16
"""Most words with another ending that are looked up."""

_ENDING_SHARE: Final = 0.3
_LEAST_STEM: Final = 5
_LONGER: Final = 4
"""Share of a word's letters that may be its ending, fewest letters of a stem, and most by which two forms differ."""

_STEM_EDITS: Final = 2
_TWO_EDITS_STEM: Final = 7
"""Most edits of a stem, and fewest letters of one with as many; a shorter one may have one."""

_COMPARED_CHUNKS: Final = 60
"""Chunks with most of a question that candidates are compared in."""

_BATCH: Final = 16_384
_SIGNATURE_BITS: Final = 64
_REREAD_SHARE: Final = 0.5
"""Share of words added since the last full read at which all are read again, without removed ones."""


class _Words:
    """The words of one collection at one time; the arrays have one element for each word."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.plain: NDArray[np.object_] = np.empty(0, np.object_)
        self.lengths: NDArray[np.int16] = np.empty(0, np.int16)
        self.signatures: NDArray[np.uint64] = np.empty(0, np.uint64)
        self.stem_signatures: NDArray[np.uint64] = np.empty(0, np.uint64)
        self.chunks: NDArray[np.int32] = np.empty(0, np.int32)
        self.last = 0
        self.read = 0

    def add(self, rows: Sequence[tuple[int, str, int]]) -> None:
        """Adds rows of number, word and chunks."""
        if not rows:
            return
        words = [word for _, word, _ in rows]
        plain = [plain_letters(word) for word in words]
        self.words += words
        self.plain = np.append(self.plain, np.array(plain, np.object_))
        self.lengths = np.append(self.lengths, np.fromiter(map(len, plain), np.int16, len(plain)))
        self.signatures = np.append(self.signatures, signatures(plain))
        stems = [letters[: stem_letters(len(letters))] for letters in plain]
        self.stem_signatures = np.append(self.stem_signatures, signatures(stems))
        self.chunks = np.append(self.chunks, np.fromiter((count for *_, count in rows), np.int32, len(rows)))
        self.last = max(number for number, *_ in rows)

    def near(self, letters: str, edits: int) -> list[tuple[str, int]]:
        """Returns the words within so many edits of letters without accents, the nearest and most frequent first."""
        (signature,) = signatures([letters])
        # As many edits as the lengths differ by insert or delete, which changes one letter; others change two.
        left = np.int16(2 * edits) - np.abs(self.lengths - np.int16(len(letters)))
        places = np.flatnonzero((left >= edits) & (np.bitwise_count(self.signatures ^ signature) <= left))
        if not len(places):
            return []
        compared = self.plain[places].tolist()
        needed = distances(letters, compared, edits)
        found = np.flatnonzero(needed <= edits)
        order = np.lexsort((-self.chunks[places[found]], needed[found]))[:_MOST_NEAR]
        return [(self.words[places[at]], int(needed[at])) for at in found[order]]

    def near_forms(self, letters: str) -> list[tuple[str, int]]:
        """Returns words with a stem near to the first letters, nearest first, the most frequent word of each stem."""
        if len(letters) <= _LEAST_STEM:
            return []
        (signature,) = signatures([letters])
        fits = (self.lengths > _LEAST_STEM) & (np.abs(self.lengths - np.int16(len(letters))) <= _LONGER)
        # Each edit brings at most one letter into a stem that the word does not have.
        places = np.flatnonzero(fits & (np.bitwise_count(self.stem_signatures & ~signature) <= _STEM_EDITS))
        if not len(places):
            return []
        stems = [letters[: stem_letters(len(letters))] for letters in self.plain[places].tolist()]
        shortest = max(_LEAST_STEM - 1, stem_letters(len(letters)) - _STEM_EDITS)
        needed = distances_of_beginnings(letters, stems, _STEM_EDITS)[shortest:].min(axis=0)
        allowed = [_STEM_EDITS if len(stem) >= _TWO_EDITS_STEM else 1 for stem in stems]
        found = np.flatnonzero(needed <= allowed)
        order = found[np.lexsort((-self.chunks[places[found]], needed[found]))]
        nearest: dict[str, tuple[str, int]] = {}
        for at in order.tolist():
            nearest.setdefault(stems[at], (self.words[places[at]], int(needed[at])))
        return list(islice(nearest.values(), _MOST_FORMS))


def stem_letters(letters: int) -> int:
    return max(_LEAST_STEM, letters - round(_ENDING_SHARE * letters))


def signatures(words: Sequence[str]) -> NDArray[np.uint64]:
    """Returns for each word a bit set for each of its letters, by its code modulo 64."""
    found = np.zeros(len(words), np.uint64)
    for start in range(0, len(words), _BATCH):
        batch = np.array(words[start : start + _BATCH])
        letters = (
            batch.view(np.uint32).reshape(len(batch), -1) if batch.itemsize else np.empty((len(batch), 0), np.uint32)
        )
        bits = np.where(letters > 0, np.uint64(1) << (letters % _SIGNATURE_BITS).astype(np.uint64), np.uint64(0))
        found[start : start + _BATCH] = np.bitwise_or.reduce(bits, axis=1)
    return found


class Vocabularies:
    """The words of all collections. May be used from any thread."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._read: OrderedDict[int, _Words] = OrderedDict()

    def counts(self, collection: int, words: Collection[str]) -> dict[str, int]:
        """Returns the number of chunks that contain each word in exactly this spelling."""
        with self._database.reading() as connection:
            return dict(
                connection.execute(
                    "SELECT word, chunks FROM words WHERE collection = ? AND word IN (SELECT value FROM json_each(?))",
                    (collection, json.dumps(list(words), ensure_ascii=False)),
                ).fetchall()
            )

    def near(self, collection: int, word: str, edits: int) -> list[Near]:
        with self._lock:
            found = dict(self._up_to_date(collection).near(plain_letters(word), edits))
        counts = self.counts(collection, found) if found else {}
        return [Near(near, distance, counts[near]) for near, distance in found.items() if near in counts]

    def near_forms(self, collection: int, word: str) -> list[Near]:
        with self._lock:
            found = dict(self._up_to_date(collection).near_forms(plain_letters(word)))
        counts = self.counts(collection, found) if found else {}
        return [Near(near, edits + 1, counts[near]) for near, edits in found.items() if near in counts]

    def _up_to_date(self, collection: int) -> _Words:
        words = self._read.pop(collection, None)
        if words is None or len(words.words) > (1 + _REREAD_SHARE) * words.read:
            words = _Words()
        self._read[collection] = words
        is_new = not words.read
        words.add(self._after(collection, words.last, MAX_WORDS - len(words.words)))
        if is_new:
            words.read = max(_BATCH, len(words.words))
        total = sum(len(each.words) for each in self._read.values())
        for other in list(islice(self._read, len(self._read) - 1)):
            if total <= MAX_ALL_WORDS:
                break
            total -= len(self._read.pop(other).words)
        return words

    def _after(self, collection: int, number: int, most: int) -> list[tuple[int, str, int]]:
        # The plus sign keeps SQLite from reading all words of the collection to find the few that are new.
        of_collection = "+collection" if number else "collection"
        with self._database.reading() as connection:
            rows: list[tuple[int, str, int]] = connection.execute(
                f"SELECT number, word, chunks FROM words WHERE number > ? AND {of_collection} = ? "
                "ORDER BY chunks DESC LIMIT ?",
                (number, collection, most),
            ).fetchall()
        return rows


class CollectionWords:
    """Implements ``Lexicon`` for one collection and one question."""

    def __init__(self, collection: int, vocabularies: Vocabularies, bm25: Bm25Index, embedder: Embedder) -> None:
        self._collection = collection
        self._vocabularies = vocabularies
        self._bm25 = bm25
        self._embedder = embedder

    @property
    def chunks(self) -> int:
        return self._bm25.chunks(self._collection)

    def counts(self, words: Collection[str]) -> dict[str, int]:
        return self._vocabularies.counts(self._collection, words)

    def term_counts(self, words: Collection[str]) -> dict[str, int]:
        """Returns the number of chunks with each word or a form of it, counted up to 1,024."""
        return self._bm25.counts(self._collection, words)

    def near(self, word: str, edits: int) -> list[Near]:
        return self._vocabularies.near(self._collection, word, edits)

    def near_forms(self, word: str) -> list[Near]:
        return self._vocabularies.near_forms(self._collection, word)

    def together(self, words: Sequence[str]) -> Iterable[Collection[int]]:
        return self._bm25.held_words(self._collection, words, _COMPARED_CHUNKS)

    def has_phrase(self, words: Sequence[str]) -> bool:
        return self._bm25.has_phrase(self._collection, words)

    def pieces(self, word: str) -> int:
        """Returns the number of embedder tokens of a word, in lower case or capitalized, whichever is less."""
        spellings = (word, word.capitalize())
        return min(map(self._embedder.count_tokens, spellings)) - self._embedder.count_tokens("")
