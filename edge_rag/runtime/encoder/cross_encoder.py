"""The cross-encoder: scores a question with a passage. Its graph takes pairs packed end to end, or padded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from edge_rag.errors import InferenceFailed, ModelFolderInvalid
from edge_rag.runtime.encoder.tokenizer import (
    INPUT_IDS,
    LENGTHS,
    POSITIONS,
    TextTokenizer,
    TokenizedText,
    pack_texts,
    plan_batches,
    plan_packs,
)
from edge_rag.runtime.model_folder.folder import ModelManifest, ModelRole, verify_model_folder
from edge_rag.runtime.session.sessions import EncoderArena, open_session, ops_library

_MODEL = "model.onnx"
_TOKENIZER = "tokenizer.json"
_TYPES = "token_type_ids"
_MASK = "attention_mask"
_RUN_TOKENS = 512
_BATCH_TOKENS = 2048


class PairGraph(Protocol):
    """Runs a model of pairs. Callers translate exceptions of libraries."""

    def score(self, sequences: Sequence[TokenizedText]) -> NDArray[np.floating]:
        """Returns the scores of each pair, [pairs] or [pairs, scores] if the graph meets its contract."""
        ...

    def keep_memory(self, keep: bool) -> None:
        """Sets whether memory of intermediate results is kept between runs; it is at first."""
        ...


def pair_graph(session: ort.InferenceSession) -> PairGraph | None:
    """Returns the runner for a graph's form, or None if it has neither."""
    inputs = {value.name for value in session.get_inputs()}
    if len(session.get_outputs()) != 1:
        return None
    if {INPUT_IDS, POSITIONS, LENGTHS} <= inputs <= {INPUT_IDS, POSITIONS, LENGTHS, _TYPES}:
        return PackedPairs(session, _TYPES in inputs)
    if {INPUT_IDS, _MASK} <= inputs <= {INPUT_IDS, _MASK, _TYPES}:
        return PaddedPairs(session, _TYPES in inputs)
    return None


class PackedPairs:
    """Runs a graph over packed pairs, as ``bert_graph.build_cross_encoder`` builds them."""

    def __init__(self, session: ort.InferenceSession, types: bool) -> None:
        self._session = session
        self._arena = EncoderArena()
        self._types = types

    def score(self, sequences: Sequence[TokenizedText]) -> NDArray[np.floating]:
        packs = plan_packs([len(sequence.ids) for sequence in sequences], _RUN_TOKENS)
        return np.concatenate([self._run(sequences[pack.start : pack.stop]) for pack in packs])

    def keep_memory(self, keep: bool) -> None:
        self._arena.keep(keep)

    def _run(self, sequences: Sequence[TokenizedText]) -> NDArray[np.floating]:
        inputs = pack_texts([sequence.ids for sequence in sequences]).inputs()
        if self._types:
            inputs[_TYPES] = np.concatenate([np.array(sequence.type_ids, np.int64) for sequence in sequences])
        return np.asarray(self._session.run(None, inputs, self._arena.options)[0])


class PaddedPairs:
    """Runs a padded graph [pairs, tokens], as Hugging Face exports them; a batch has pairs of one width."""

    def __init__(self, session: ort.InferenceSession, types: bool) -> None:
        self._session = session
        self._arena = EncoderArena()
        self._types = types

    def score(self, sequences: Sequence[TokenizedText]) -> NDArray[np.floating]:
        batches = plan_batches([len(sequence.ids) for sequence in sequences], _BATCH_TOKENS)
        scores = [self._run([sequences[row] for row in batch.rows], batch.width) for batch in batches]
        order = np.argsort([row for batch in batches for row in batch.rows])
        joined = np.concatenate(scores)
        return joined[order] if len(joined) == len(order) else joined

    def keep_memory(self, keep: bool) -> None:
        self._arena.keep(keep)

    def _run(self, sequences: Sequence[TokenizedText], width: int) -> NDArray[np.floating]:
        ids, mask, types = (np.zeros((len(sequences), width), dtype=np.int64) for _ in range(3))
        for row, sequence in enumerate(sequences):
            length = len(sequence.ids)
            ids[row, :length] = sequence.ids
            mask[row, :length] = 1
            types[row, :length] = sequence.type_ids
        inputs = {INPUT_IDS: ids, _MASK: mask} | ({_TYPES: types} if self._types else {})
        return np.asarray(self._session.run(None, inputs, self._arena.options)[0])


class PairEncoder:
    """A cross-encoder from a model folder. Any method may be called by any thread.

    Attributes:
        max_tokens: Most tokens of a pair, special tokens included; the passage gives way first.
    """

    def __init__(self, graph: PairGraph, tokenizer: TextTokenizer, manifest: ModelManifest, form: str = "") -> None:
        self._graph = graph
        self._tokenizer = tokenizer
        self.name = manifest.name
        self.identity = manifest.identity(form)
        self.max_tokens = tokenizer.max_tokens

    def keep_memory(self, keep: bool) -> None:
        self._graph.keep_memory(keep)

    @classmethod
    def open(cls, folder: Path) -> PairEncoder:
        """Verifies and opens a model folder of the role ``reranker``.

        The graph takes ``input_ids`` and, where it wants them, ``token_type_ids``, int64, in one of two forms: [tokens]
        of pairs end to end, with ``positions`` int64 [tokens] and ``cumulative_sequence_lengths`` int32 [pairs + 1]; or
        padded [pairs, tokens] with ``attention_mask`` int64, as Hugging Face's exports do. It gives one float output,
        [pairs] or [pairs, 1]. The manifest's parameters are ``max_tokens``.
        """
        manifest = verify_model_folder(folder, ModelRole.RERANKER, required=(_MODEL, _TOKENIZER))
        tokenizer = TextTokenizer.open(folder / _TOKENIZER, manifest.integer("max_tokens", 8, 65_536))
        session = open_session(folder / _MODEL, ops_library())
        graph = pair_graph(session)
        if graph is None:
            inputs = sorted(value.name for value in session.get_inputs())
            outputs = sorted(value.name for value in session.get_outputs())
            raise ModelFolderInvalid(
                f"{folder}: {_MODEL} is not a cross-encoder (inputs {inputs}, outputs {outputs}); export it with one "
                "score a pair as its only output"
            )
        return cls(graph, tokenizer, manifest)

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Scores each (question, passage) pair.

        Returns:
            float32 [pairs], larger is better.
        """
        if not pairs:
            return np.empty(0, dtype=np.float32)
        sequences = [self._tokenizer.pair(question, passage) for question, passage in pairs]
        try:
            scores = self._graph.score(sequences).reshape(-1)
        except Exception as error:
            raise InferenceFailed(f"{self.name}: the cross-encoder failed: {error}") from error
        if len(scores) != len(pairs) or not np.isfinite(scores).all():
            raise InferenceFailed(
                f"{self.name}: {len(pairs)} scores were expected, {len(scores)} came"
                + ("" if np.isfinite(scores).all() else ", and some are not numbers")
            )
        return scores.astype(np.float32)
