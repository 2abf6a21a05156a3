"""Running texts of any length through graphs of a few fixed ones, each text through the shortest that holds it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnxruntime as ort

from edge_rag.runtime.encoder.bert_graph import Floats, Pooling
from edge_rag.runtime.encoder.bert_parts import TokenTables
from edge_rag.runtime.encoder.npu.calibration import filled_up
from edge_rag.runtime.encoder.tokenizer import TokenizedText


@dataclass(frozen=True, slots=True, eq=False)
class FixedGraphs:
    """The opened graphs of an encoder. May be run from any thread; the processor takes one text after the other.

    Attributes:
        tables: What tokens are looked up in.
        mask: What keeps the tokens that fill up out of attention.
        sessions: A session by length.
        turn: Held while one runs.
    """

    tables: TokenTables
    mask: float
    sessions: Mapping[int, ort.InferenceSession]
    turn: threading.Lock

    def run(self, ids: Sequence[int], types: Sequence[int]) -> Floats:
        """Returns the output of the shortest graph that holds a text, with what filled it up.

        Args:
            ids: Token ids, at least one and no more than the longest graph has.
            types: Token types, as many.
        """
        length = min(length for length in self.sessions if length >= len(ids))
        vectors = self.tables.look_up(np.array(ids, np.int64), np.array(types, np.int64))
        inputs = filled_up(vectors, length, self.mask)
        with self.turn:
            result: Floats = self.sessions[length].run(None, inputs)[0]
        return result


class FixedTextGraph:
    """Implements ``TextGraph``."""

    def __init__(self, graphs: FixedGraphs, pooling: Pooling) -> None:
        self._graphs = graphs
        self._pooling = pooling

    def sentence_vectors(self, texts: Sequence[Sequence[int]]) -> Floats:
        """Runs one text after the other."""
        hidden = [self._hidden(ids) for ids in texts]
        pooled = [rows.mean(axis=0) if self._pooling is Pooling.MEAN else rows[0] for rows in hidden]
        return _unit(np.stack(pooled)) if pooled else np.empty((0, self._graphs.tables.places.shape[1]), np.float32)

    def token_vectors(self, texts: Sequence[Sequence[int]]) -> list[Floats]:
        """Runs one text after the other."""
        return [_unit(self._hidden(ids)) for ids in texts]

    def keep_memory(self, keep: bool) -> None:
        """Does nothing: the memory is the NPU driver's."""

    def _hidden(self, ids: Sequence[int]) -> Floats:
        return self._graphs.run(ids, [0] * len(ids))[: len(ids)]


class FixedPairs:
    """Implements ``PairGraph``."""

    def __init__(self, graphs: FixedGraphs) -> None:
        self._graphs = graphs

    def score(self, sequences: Sequence[TokenizedText]) -> Floats:
        """Runs one pair after the other."""
        return np.array([self._graphs.run(pair.ids, pair.type_ids)[0, 0] for pair in sequences], np.float32)

    def keep_memory(self, keep: bool) -> None:
        """Does nothing: the memory is the NPU driver's."""


def _unit(rows: Floats) -> Floats:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: Floats = rows / np.maximum(lengths, np.float32(1e-12))
    return unit
