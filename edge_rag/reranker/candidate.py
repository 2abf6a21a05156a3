"""Passages as the models encode them, their comparison with a question, and a cache of them.

Sentences of definitions and tables, and sections, have keys by which they are looked up:

    a definition: the short line without a full stop above its lines is the term
    a row of a table: its first cell, also with the name of its column
    a section: its heading

Blank lines separate blocks of a stored text; line breaks separate lines of a list and rows of a table.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from edge_rag.analysis.terms import Term, terms_of
from edge_rag.core.ids import ChunkId
from edge_rag.core.passage import Passage
from edge_rag.core.text import is_open, sentence_spans
from edge_rag.reranker.scoring import coverage
from edge_rag.runtime.encoder.text_encoder import TokenVectors

Span = tuple[int, int]
"""Characters of a text: the first one, and one past the last."""

LONGEST_TERM: Final = 120
"""Most characters of the line of a term."""

_SECTION_NUMBER: Final = re.compile(r"^(?:[A-Z]?\d{0,2}(?:\.\d{1,2})+\.?|\d{1,2}\.?)\s+")
_BLOCK_END: Final = "\n\n"
_DIVIDER: Final = " | "


def labels_of(text: str, sentences: Sequence[Span]) -> tuple[Span | None, ...]:
    """Returns the range of the term that each sentence defines, or None; a sentence does not cross lines."""
    lines = list(_labelled_lines(text))
    labels: list[Span | None] = []
    at = 0
    for start, _ in sentences:
        while at + 1 < len(lines) and lines[at + 1][0] <= start:
            at += 1
        labels.append(lines[at][1])
    return tuple(labels)


def keys_of(text: str, sentence: Span, label: Span | None) -> Iterator[str]:
    """Yields the names by which a sentence is looked up: the term that it defines, or the first cell of its row."""
    row = text[slice(*sentence)]
    if _DIVIDER in row:
        first = row.partition(_DIVIDER)[0]
        yield first
        yield first.partition(": ")[2]  # a cell with the name of its column
        table = text.rfind(_BLOCK_END, 0, sentence[0]) + len(_BLOCK_END)
        header = text[max(0, table) if table >= len(_BLOCK_END) else 0 : sentence[0]].partition("\n")[0]
        if _DIVIDER in header:
            yield f"{header.partition(_DIVIDER)[0]} {first}"
    elif label is not None:
        yield text[slice(*label)]


def heading_key(headings: Sequence[str]) -> str:
    """Returns the name by which a section is looked up: its heading without its number; empty without one."""
    return _SECTION_NUMBER.sub("", headings[-1]) if headings else ""


def _labelled_lines(text: str) -> Iterator[tuple[int, Span | None]]:
    """Yields the begin of each line, and its label."""
    begin = 0
    for block in text.split(_BLOCK_END):
        label: Span | None = None
        for line in block.split("\n"):
            span = (begin, begin + len(line))
            if is_open(line):
                yield begin, None
                label = span if len(line) <= LONGEST_TERM and _DIVIDER not in line else None
            else:
                yield begin, label
            begin += len(line) + 1
        begin += len(_BLOCK_END) - 1


def model_text(passage: Passage) -> str:
    return "\n".join((*passage.context, passage.text))


def in_steps(texts: Sequence[str], characters: int, each: int = 0) -> Iterator[list[str]]:
    """Yields texts in order, in groups of at least so many characters; the last one may have fewer."""
    step: list[str] = []
    size = 0
    for text in texts:
        step.append(text)
        size += len(text) + each
        if size >= characters:
            yield step
            step, size = [], 0
    if step:
        yield step


@dataclass(frozen=True, slots=True, eq=False)
class LookUp:
    """The names by which a sentence of a definition or a table is looked up.

    Attributes:
        label: Character range of the term that it defines; None without one.
        keys: Index terms of each name: the term, or the first cell of its row.
    """

    label: tuple[int, int] | None = None
    terms: frozenset[str] = frozenset()
    keys: tuple[frozenset[str], ...] = ()

    def named(self, term_weights: Mapping[str, float]) -> float:
        return max((coverage(key, term_weights) for key in self.keys if key <= term_weights.keys()), default=0.0)


_NO_LOOK_UP: Final = LookUp()


@dataclass(frozen=True, slots=True, eq=False)
class EncodedPassage:
    """The part of a passage's comparison that does not depend on the question: term counts, sentences with terms."""

    vectors: TokenVectors
    counts: Mapping[str, int]
    length: int
    sentences: tuple[tuple[int, int, tuple[str, ...]], ...]
    look_ups: tuple[LookUp, ...]
    section: LookUp
    bytes: int

    @classmethod
    def of(cls, passage: Passage, vectors: TokenVectors) -> EncodedPassage:
        """Returns the encoded passage; ``vectors`` are the token vectors of its ``model_text``."""
        read = model_text(passage)
        found = list(terms_of(read))
        counts = Counter(term for _, _, term in found)
        text = passage.text
        spans = sentence_spans(text)
        sentences = tuple(_sentences(text, spans, found, len(read) - len(text)))
        look_ups = tuple(_look_ups(text, spans))
        heading = _terms(heading_key(passage.context))
        section = LookUp(keys=(heading,)) if heading else _NO_LOOK_UP
        arrays = vectors.vectors.nbytes + vectors.offsets.nbytes
        terms = sum(sys.getsizeof(term) for term in counts) + sys.getsizeof(counts)
        references = sum(sys.getsizeof(each) + sys.getsizeof(each[2]) for each in sentences)
        references += sum(map(_bytes, (section, *look_ups)))
        return cls(vectors, counts, counts.total(), sentences, look_ups, section, arrays + terms + references)


def _sentences(
    text: str, spans: Sequence[tuple[int, int]], terms: Sequence[Term], shift: int
) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    starts = [term.start - shift for term in terms]
    first = bisect_left(starts, 0)
    for start, end in spans:
        last = bisect_left(starts, end, first)
        own = terms[first:last]
        if not own or (own[0].start - shift >= start and own[-1].end - shift <= end):
            yield start, end, tuple(term.term for term in own)
        else:  # a number or a run of characters without spaces goes beyond the sentence, and is cut with it
            yield start, end, tuple(term for _, _, term in terms_of(text[start:end]))
        first = last


def _look_ups(text: str, spans: Sequence[tuple[int, int]]) -> Iterator[LookUp]:
    for span, label in zip(spans, labels_of(text, spans), strict=True):
        found = tuple(key for key in map(_terms, keys_of(text, span, label)) if key)
        if label is None and not found:
            yield _NO_LOOK_UP
        else:
            yield LookUp(label, frozenset() if label is None else _terms(text[slice(*label)]), found)


def _terms(text: str) -> frozenset[str]:
    return frozenset(term for _, _, term in terms_of(text))


def _bytes(look_up: LookUp) -> int:
    return 0 if look_up is _NO_LOOK_UP else sum(map(sys.getsizeof, (look_up.terms, *look_up.keys)))


@dataclass(frozen=True, slots=True, eq=False)
class RerankCandidate:
    """A passage compared with a question by cosines, float32 [question tokens, passage tokens]."""

    passage: Passage
    encoded: EncodedPassage
    cosines: NDArray[np.float32]

    def cosines_of(self, start: int, end: int) -> NDArray[np.float32]:
        """Returns the columns of ``cosines`` whose tokens begin in a character range of ``passage.text``."""
        shift = len(model_text(self.passage)) - len(self.passage.text)
        starts: NDArray[np.int32] = self.encoded.vectors.offsets[:, 0]
        first, last = np.searchsorted(starts, (start + shift, end + shift))
        return self.cosines[:, first:last]


def compare(
    question: TokenVectors, passages: Sequence[Passage], encoded: Sequence[EncodedPassage]
) -> tuple[RerankCandidate, ...]:
    """Compares a question with all of its passages, in order, in one matrix product."""
    if not passages:
        return ()
    cosines = question.vectors @ np.concatenate([each.vectors.vectors for each in encoded]).T
    ends = np.cumsum([len(each.vectors.vectors) for each in encoded])
    return tuple(
        RerankCandidate(passage, each, columns)
        for passage, each, columns in zip(passages, encoded, np.split(cosines, ends[:-1], axis=1), strict=True)
    )


class KeptVectors(Protocol):
    """Token vectors of passages that outlast the process, most of them computed when documents were ingested."""

    def __contains__(self, passage: Passage) -> bool:
        """Whether a passage's vectors are probably kept; any thread, at once."""
        ...

    def read(self, passages: Sequence[Passage]) -> list[TokenVectors | None]:
        """Returns the vectors of each passage, in order; None where they are not kept or damaged."""
        ...

    def write(self, passages: Sequence[Passage], vectors: Sequence[TokenVectors]) -> None:
        """Keeps vectors of passages that were asked for, if there is room or others are asked for less."""
        ...


class PassageCache:
    """An LRU cache of encoded passages, 0 bytes for none. For one thread at a time.

    The key is chunk and text, so that timing reveals nothing about requests to another collection.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity_bytes = capacity_bytes
        self._entries: OrderedDict[tuple[ChunkId, str], EncodedPassage] = OrderedDict()
        self._bytes = 0

    @property
    def bytes(self) -> int:
        return self._bytes

    def __contains__(self, passage: Passage) -> bool:
        """Whether a passage is cached; any thread."""
        return _key(passage) in self._entries

    def get(self, passage: Passage) -> EncodedPassage | None:
        key = _key(passage)
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def put(self, passage: Passage, encoded: EncodedPassage) -> None:
        """Adds an encoded passage and evicts others; does nothing if it exceeds the capacity."""
        key, size = _key(passage), encoded.bytes
        if size > self._capacity_bytes:
            return
        if (replaced := self._entries.pop(key, None)) is not None:
            self._bytes -= replaced.bytes
        self._entries[key] = encoded
        self._bytes += size
        while self._bytes > self._capacity_bytes:
            _, oldest = self._entries.popitem(last=False)
            self._bytes -= oldest.bytes


def _key(passage: Passage) -> tuple[ChunkId, str]:
    return passage.chunk_id, model_text(passage)
