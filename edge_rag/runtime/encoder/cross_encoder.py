"""A cross-encoder: a question and a passage in, one score out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge_rag.errors import InferenceFailed, ModelFolderInvalid
from edge_rag.runtime.encoder.pair_graphs import PairGraph, pair_graph
from edge_rag.runtime.encoder.tokenizer import TextTokenizer
from edge_rag.runtime.model_folder.folder import ModelManifest, ModelRole, verify_model_folder
from edge_rag.runtime.session.ops_library import ops_library
from edge_rag.runtime.session.sessions import open_session

_MODEL = "model.onnx"
_TOKENIZER = "tokenizer.json"


class PairEncoder:
    """A cross-encoder from a model folder. Any method may be called by any thread.

    Attributes:
        name: Name of the model.
        identity: Names the scores: changes whenever the same pair could get others.
        max_tokens: Most tokens of a pair, special tokens included; the passage gives way first.
    """

    def __init__(self, graph: PairGraph, tokenizer: TextTokenizer, manifest: ModelManifest, form: str = "") -> None:
        self._graph = graph
        self._tokenizer = tokenizer
        self.name = manifest.name
        self.identity = manifest.identity(form)
        self.max_tokens = tokenizer.max_tokens

    def keep_memory(self, keep: bool) -> None:
        """Says whether memory of intermediate results is kept between runs; it is at first."""
        self._graph.keep_memory(keep)

    @classmethod
    def open(cls, folder: Path) -> PairEncoder:
        """Verifies and opens a model folder of the role ``reranker``.

        The graph takes ``input_ids`` and, where it wants them, ``token_type_ids``, int64, in one of two forms: [tokens]
        of pairs end to end, with ``positions`` int64 [tokens] and ``cumulative_sequence_lengths`` int32 [pairs + 1]; or
        padded [pairs, tokens] with ``attention_mask`` int64, as Hugging Face's exports do. It gives one float output,
        [pairs] or [pairs, 1]. The manifest's parameters are ``max_tokens``.

        Raises:
            ModelFolderInvalid: The folder is not what its manifest says, or not such a model.
            ModelError: ONNX Runtime cannot run the graph.
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

        Raises:
            InferenceFailed: ONNX Runtime failed, or a text is not valid Unicode.
        """
        if not pairs:
            return np.empty(0, dtype=np.float32)
        sequences = [self._tokenizer.pair(question, passage) for question, passage in pairs]
        try:
            scores = self._graph.score(sequences)
        except Exception as error:
            raise InferenceFailed(f"{self.name}: the cross-encoder failed: {error}") from error
        if len(scores) != len(pairs) or not np.isfinite(scores).all():
            raise InferenceFailed(
                f"{self.name}: {len(pairs)} scores were expected, {len(scores)} came"
                + ("" if np.isfinite(scores).all() else ", and some are not numbers")
            )
        return scores.astype(np.float32)
