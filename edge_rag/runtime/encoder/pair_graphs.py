"""The two forms of a cross-encoder's graph: pairs end to end, and pairs padded to a common width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from edge_rag.runtime.encoder.batching import INPUT_IDS, LENGTHS, POSITIONS, pack_texts, plan_packs
from edge_rag.runtime.encoder.length_batches import plan_batches
from edge_rag.runtime.encoder.tokenizer import TokenizedText
from edge_rag.runtime.session.encoder_arena import EncoderArena

_TYPES = "token_type_ids"
_MASK = "attention_mask"
_RUN_TOKENS = 512
_BATCH_TOKENS = 2048


class PairGraph(Protocol):
    """Runs a cross-encoder. Foreign exceptions are left to the caller."""

    def score(self, sequences: Sequence[TokenizedText]) -> NDArray[np.floating]:
        """Returns what the graph makes of each pair, [pairs] if the graph keeps to its contract."""
        ...

    def keep_memory(self, keep: bool) -> None:
        """Says whether memory of intermediate results is kept between runs; it is at first."""
        ...


def pair_graph(session: ort.InferenceSession) -> PairGraph | None:
    """Returns the form a graph has, or None if it has neither."""
    inputs = {value.name for value in session.get_inputs()}
    if len(session.get_outputs()) != 1:
        return None
    if {INPUT_IDS, POSITIONS, LENGTHS} <= inputs <= {INPUT_IDS, POSITIONS, LENGTHS, _TYPES}:
        return PackedPairs(session, _TYPES in inputs)
    if {INPUT_IDS, _MASK} <= inputs <= {INPUT_IDS, _MASK, _TYPES}:
        return PaddedPairs(session, _TYPES in inputs)
    return None


class PackedPairs:
    """A graph over pairs end to end, as scripts/models/make_cross_encoder.py makes them: no padding at all."""

    def __init__(self, session: ort.InferenceSession, types: bool) -> None:
        self._session = session
        self._arena = EncoderArena()
        self._types = types

    def score(self, sequences: Sequence[TokenizedText]) -> NDArray[np.floating]:
        """Scores the pairs, a few at a time."""
        packs = plan_packs([len(sequence.ids) for sequence in sequences], _RUN_TOKENS)
        return np.concatenate([self._run(sequences[pack.start : pack.stop]) for pack in packs])

    def keep_memory(self, keep: bool) -> None:
        """Tells the arena."""
        self._arena.keep(keep)

    def _run(self, sequences: Sequence[TokenizedText]) -> NDArray[np.floating]:
        inputs = pack_texts([sequence.ids for sequence in sequences]).inputs()
        if self._types:
            inputs[_TYPES] = np.concatenate([np.array(sequence.type_ids, np.int64) for sequence in sequences])
        return np.asarray(self._session.run(None, inputs, self._arena.options)[0]).reshape(-1)


class PaddedPairs:
    """A graph [pairs, tokens], as Hugging Face's exports are; pairs share a batch with pairs of about their length."""

    def __init__(self, session: ort.InferenceSession, types: bool) -> None:
        self._session = session
        self._arena = EncoderArena()
        self._types = types

    def score(self, sequences: Sequence[TokenizedText]) -> NDArray[np.floating]:
        """Scores the pairs, batch by batch."""
        batches = plan_batches([len(sequence.ids) for sequence in sequences], _BATCH_TOKENS)
        scores = [self._run([sequences[row] for row in batch.rows], batch.width) for batch in batches]
        order = np.argsort([row for batch in batches for row in batch.rows])
        joined = np.concatenate(scores)
        return joined[order] if len(joined) == len(order) else joined

    def keep_memory(self, keep: bool) -> None:
        """Tells the arena."""
        self._arena.keep(keep)

    def _run(self, sequences: Sequence[TokenizedText], width: int) -> NDArray[np.floating]:
        ids, mask, types = (np.zeros((len(sequences), width), dtype=np.int64) for _ in range(3))
        for row, sequence in enumerate(sequences):
            length = len(sequence.ids)
            ids[row, :length] = sequence.ids
            mask[row, :length] = 1
            types[row, :length] = sequence.type_ids
        inputs = {INPUT_IDS: ids, _MASK: mask} | ({_TYPES: types} if self._types else {})
        return np.asarray(self._session.run(None, inputs, self._arena.options)[0]).reshape(-1)
