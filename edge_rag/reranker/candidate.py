"""A passage under consideration, with what the models made of it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.passage import Passage
from edge_rag.core.text import sentence_spans
from edge_rag.reranker.words import words_of
from edge_rag.runtime.encoder.text_encoder import TokenVectors


def model_text(passage: Passage) -> str:
    """What models read for a passage: the headings above it, outermost first, then its text."""
    return "\n".join((*passage.context, passage.text))


@dataclass(frozen=True, slots=True, eq=False)
class ReadPassage:
    """What questions are compared with of a passage, the same for all of them.

    Attributes:
        vectors: Token vectors of ``model_text``.
        mean: float32 [dimension], their mean; zeros where there are none.
        counts: How often each word of ``model_text`` occurs, in lower case.
        length: Words of ``model_text``.
        sentences: Character range of each sentence in the passage's text, and its words in lower case.
        bytes: Memory that all of this takes, about.
    """

    vectors: TokenVectors
    mean: NDArray[np.float32]
    counts: Mapping[str, int]
    length: int
    sentences: tuple[tuple[int, int, tuple[str, ...]], ...]
    bytes: int

    @classmethod
    def of(cls, passage: Passage, vectors: TokenVectors) -> ReadPassage:
        """Reads a passage.

        Args:
            passage: The passage.
            vectors: Token vectors of its ``model_text``.
        """
        counts = Counter(words_of(model_text(passage)))
        same = {word: word for word in counts}
        text = passage.text
        sentences = tuple(
            (start, end, tuple(same.get(word, word) for word in words_of(text[start:end])))
            for start, end in sentence_spans(text)
        )
        mean = mean_vector(vectors)
        arrays = vectors.vectors.nbytes + vectors.offsets.nbytes + mean.nbytes
        words = sum(sys.getsizeof(word) for word in counts) + sys.getsizeof(counts)
        references = sum(sys.getsizeof(each) + sys.getsizeof(each[2]) for each in sentences)
        return cls(vectors, mean, counts, counts.total(), sentences, arrays + words + references)


def mean_vector(vectors: TokenVectors) -> NDArray[np.float32]:
    """Returns the mean of a text's token vectors, float32 [dimension]; zeros where it has none."""
    rows = vectors.vectors
    mean: NDArray[np.float32] = rows.mean(axis=0) if len(rows) else np.zeros(rows.shape[1], np.float32)
    return mean


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A passage compared with a question, token by token.

    Attributes:
        passage: The passage.
        read: What there is of it to compare.
        cosines: float32 [question tokens, passage tokens], how alike each two tokens are.
    """

    passage: Passage
    read: ReadPassage
    cosines: NDArray[np.float32]

    def cosines_of(self, start: int, end: int) -> NDArray[np.float32]:
        """Returns the columns of ``cosines`` whose tokens begin in a character range of ``passage.text``."""
        shift = len(model_text(self.passage)) - len(self.passage.text)
        starts: NDArray[np.int32] = self.read.vectors.offsets[:, 0]
        first, last = np.searchsorted(starts, (start + shift, end + shift))
        return self.cosines[:, first:last]


def compare(question: TokenVectors, passages: Sequence[Passage], read: Sequence[ReadPassage]) -> tuple[Candidate, ...]:
    """Compares a question with all of its passages in one matrix product.

    Args:
        question: Token vectors of the question.
        passages: The passages.
        read: What there is of each.

    Returns:
        One candidate a passage, in order.
    """
    if not passages:
        return ()
    cosines = question.vectors @ np.concatenate([each.vectors.vectors for each in read]).T
    ends = np.cumsum([len(each.vectors.vectors) for each in read])
    return tuple(
        Candidate(passage, each, columns)
        for passage, each, columns in zip(passages, read, np.split(cosines, ends[:-1], axis=1), strict=True)
    )
