"""Running texts of any length in rectangles of a few shapes.

A text is filled up to a length that follows from its own, and a rectangle of that length always has the same number of
rows. So a text meets the same shapes whoever its neighbours are, and a provider the same few kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from edge_rag.runtime.encoder.bert_graph import Floats
from edge_rag.runtime.encoder.gpu.padded_graph import INPUT_IDS, MASK, POSITIONS, TYPES
from edge_rag.runtime.encoder.tokenizer import TokenizedText

_RUN_TOKENS: Final = 512
"""Tokens of a rectangle, with what fills it up; as many as go through the cores at once (``text_graphs``)."""


def rows_of(length: int) -> int:
    """Returns how many texts a rectangle of a length holds."""
    return max(1, _RUN_TOKENS // length)


@dataclass(frozen=True, slots=True)
class Rectangle:
    """Texts that are run together.

    Attributes:
        length: Tokens that each is filled up to.
        texts: Which texts, at least one and no more than ``rows_of(length)``.
    """

    length: int
    texts: tuple[int, ...]


def plan_rectangles(texts: Sequence[int], lengths: Sequence[int]) -> list[Rectangle]:
    """Groups texts by the shortest length that holds them, shortest first; every text is in exactly one group.

    Args:
        texts: Tokens of each text, none more than the last length.
        lengths: The lengths there are, ascending.
    """
    by_length: dict[int, list[int]] = {length: [] for length in lengths}
    for number, tokens in enumerate(texts):
        by_length[next(length for length in lengths if length >= tokens)].append(number)
    return [
        Rectangle(length, tuple(members[first : first + rows_of(length)]))
        for length, members in by_length.items()
        for first in range(0, len(members), rows_of(length))
    ]


class PaddedRuns:
    """An opened graph of ``padded_graph``. May be run from any thread."""

    def __init__(self, session: ort.InferenceSession, lengths: Sequence[int]) -> None:
        """Takes a session.

        Args:
            session: Of such a graph.
            lengths: What texts are filled up to, ascending.
        """
        self._session = session
        self._types = TYPES in {value.name for value in session.get_inputs()}
        self.lengths = tuple(lengths)

    def run(
        self, output: str, ids: Sequence[Sequence[int]], types: Sequence[Sequence[int]]
    ) -> Iterator[tuple[int, Floats]]:
        """Runs texts; yields each one's number and its row of the output, with what filled it up.

        Args:
            output: Name of the output.
            ids: Token ids of each text, at least one and no more than the last length.
            types: Token types, as many.
        """
        for rectangle in plan_rectangles([len(each) for each in ids], self.lengths):
            inputs = self._inputs(rectangle, ids, types)
            result = self._session.run([output], inputs)[0]
            yield from zip(rectangle.texts, result, strict=False)

    def _inputs(
        self, rectangle: Rectangle, ids: Sequence[Sequence[int]], types: Sequence[Sequence[int]]
    ) -> dict[str, NDArray[np.int64]]:
        shape = (rows_of(rectangle.length), rectangle.length)
        tokens, mask, kinds = (np.zeros(shape, np.int64) for _ in range(3))
        # A row without a token would be divided by nothing.
        mask[:, 0] = 1
        for row, number in enumerate(rectangle.texts):
            length = len(ids[number])
            tokens[row, :length] = ids[number]
            mask[row, :length] = 1
            kinds[row, :length] = types[number]
        positions = np.broadcast_to(np.arange(shape[1], dtype=np.int64), shape).copy()
        return {INPUT_IDS: tokens, POSITIONS: positions, MASK: mask} | ({TYPES: kinds} if self._types else {})


class PaddedTextGraph:
    """Implements ``TextGraph``."""

    def __init__(self, runs: PaddedRuns, dimension: int) -> None:
        self._runs = runs
        self._dimension = dimension

    def sentence_vectors(self, texts: Sequence[Sequence[int]]) -> Floats:
        """Runs the texts, a rectangle at a time."""
        vectors = np.empty((len(texts), self._dimension), np.float32)
        for number, vector in self._runs.run("sentence_vectors", texts, [[0] * len(ids) for ids in texts]):
            vectors[number] = vector
        return vectors

    def token_vectors(self, texts: Sequence[Sequence[int]]) -> list[Floats]:
        """Runs the texts, a rectangle at a time."""
        made = dict(self._runs.run("token_vectors", texts, [[0] * len(ids) for ids in texts]))
        return [made[number][: len(ids)] for number, ids in enumerate(texts)]

    def keep_memory(self, keep: bool) -> None:
        """Does nothing: the memory of results is the device's, within the provider's limit."""


class PaddedPairGraph:
    """Implements ``PairGraph``."""

    def __init__(self, runs: PaddedRuns) -> None:
        self._runs = runs

    def score(self, sequences: Sequence[TokenizedText]) -> Floats:
        """Scores the pairs, a rectangle at a time."""
        scores = np.empty(len(sequences), np.float32)
        ids, types = [pair.ids for pair in sequences], [pair.type_ids for pair in sequences]
        for number, score in self._runs.run("scores", ids, types):
            scores[number] = score[0]
        return scores

    def keep_memory(self, keep: bool) -> None:
        """Does nothing: the memory of results is the device's, within the provider's limit."""
