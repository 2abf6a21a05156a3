"""What a text encoder needs of a graph, whatever shapes it takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from edge_rag.errors import InferenceFailed
from edge_rag.runtime.encoder.batching import INPUT_IDS, LENGTHS, POSITIONS, pack_texts, plan_packs
from edge_rag.runtime.session.encoder_arena import EncoderArena

Floats = NDArray[np.float32]

# Few enough that what passes between two layers stays in a core's cache.
_RUN_TOKENS = 512


class TextGraph(Protocol):
    """Runs a text encoder on token ids, from any thread. Foreign exceptions are left to the caller."""

    def sentence_vectors(self, texts: Sequence[Sequence[int]]) -> Floats:
        """Returns one vector a text, float32 [texts, dimension], all of unit length."""
        ...

    def token_vectors(self, texts: Sequence[Sequence[int]]) -> list[Floats]:
        """Returns, for each text, one vector a token, float32 [tokens, dimension], all of unit length."""
        ...

    def keep_memory(self, keep: bool) -> None:
        """Says whether memory of intermediate results is kept between runs; it is at first."""
        ...


def text_graph(session: ort.InferenceSession, dimension: int) -> TextGraph | None:
    """Returns the form of a graph over texts end to end, or None if it is none."""
    inputs = {value.name for value in session.get_inputs()}
    outputs = {value.name for value in session.get_outputs()}
    if inputs != {INPUT_IDS, POSITIONS, LENGTHS} or not {"token_vectors", "sentence_vectors"} <= outputs:
        return None
    return PackedTextGraph(session, dimension)


class PackedTextGraph:
    """A graph over texts end to end: no padding, and any lengths in one run."""

    def __init__(self, session: ort.InferenceSession, dimension: int) -> None:
        self._session = session
        self._arena = EncoderArena()
        self._dimension = dimension

    def sentence_vectors(self, texts: Sequence[Sequence[int]]) -> Floats:
        """Runs the texts, a few at a time."""
        vectors = np.empty((len(texts), self._dimension), dtype=np.float32)
        for pack in plan_packs([len(ids) for ids in texts], _RUN_TOKENS):
            vectors[pack.start : pack.stop] = self._run("sentence_vectors", texts[pack.start : pack.stop], len(pack))
        return vectors

    def token_vectors(self, texts: Sequence[Sequence[int]]) -> list[Floats]:
        """Runs the texts, a few at a time."""
        vectors: list[Floats] = []
        for pack in plan_packs([len(ids) for ids in texts], _RUN_TOKENS):
            packed = texts[pack.start : pack.stop]
            ends = np.cumsum([len(ids) for ids in packed])
            vectors += np.split(self._run("token_vectors", packed, int(ends[-1])), ends[:-1])
        return vectors

    def keep_memory(self, keep: bool) -> None:
        """Tells the arena."""
        self._arena.keep(keep)

    def _run(self, output: str, texts: Sequence[Sequence[int]], rows: int) -> Floats:
        result: Floats = self._session.run([output], dict(pack_texts(texts).inputs()), self._arena.options)[0]
        if result.shape != (rows, self._dimension):
            raise InferenceFailed(
                f"{output} has the shape {list(result.shape)}, {[rows, self._dimension]} was promised"
            )
        return result
