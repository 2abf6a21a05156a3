"""A cross-encoder: a question and a passage in, one score out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from edge_rag.errors import InferenceFailed, ModelFolderInvalid
from edge_rag.runtime.length_batches import plan_batches
from edge_rag.runtime.model_folder import ModelManifest, ModelRole, verify_model_folder
from edge_rag.runtime.sessions import open_session
from edge_rag.runtime.text_tokenizer import TextTokenizer, TokenizedText

_MODEL = "model.onnx"
_TOKENIZER = "tokenizer.json"
_BATCH_TOKENS = 2048
_INPUTS = frozenset({"input_ids", "attention_mask", "token_type_ids"})


class PairEncoder:
    """A cross-encoder from a model folder. Any method may be called by any thread.

    Attributes:
        name: Name of the model.
        max_tokens: Most tokens of a pair, special tokens included; the passage gives way first.
    """

    def __init__(self, session: ort.InferenceSession, tokenizer: TextTokenizer, manifest: ModelManifest) -> None:
        self._session = session
        self._tokenizer = tokenizer
        self._inputs = [value.name for value in session.get_inputs()]
        self.name = manifest.name
        self.max_tokens = manifest.integer("max_tokens", 8, 65_536)

    @classmethod
    def open(cls, folder: Path) -> PairEncoder:
        """Verifies and opens a model folder of the role ``reranker``.

        The graph takes ``input_ids``, ``attention_mask`` and, where it wants them, ``token_type_ids``, all int64
        [batch, tokens], as Hugging Face's exports do, and gives one float output [batch] or [batch, 1]. The manifest's
        parameters are ``max_tokens``.

        Raises:
            ModelFolderInvalid: The folder is not what its manifest says, or not such a model.
            ModelError: ONNX Runtime cannot run the graph.
        """
        manifest = verify_model_folder(folder, ModelRole.RERANKER, required=(_MODEL, _TOKENIZER))
        tokenizer = TextTokenizer.open(folder / _TOKENIZER, manifest.integer("max_tokens", 8, 65_536))
        session = open_session(folder / _MODEL)
        inputs = {value.name for value in session.get_inputs()}
        outputs = [value.name for value in session.get_outputs()]
        if not {"input_ids", "attention_mask"} <= inputs <= _INPUTS or len(outputs) != 1:
            raise ModelFolderInvalid(
                f"{folder}: {_MODEL} is not a cross-encoder (inputs {sorted(inputs)}, outputs {outputs}); export it "
                "with one score a pair as its only output"
            )
        return cls(session, tokenizer, manifest)

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Scores each (question, passage) pair.

        Returns:
            float32 [pairs], larger is better.

        Raises:
            InferenceFailed: ONNX Runtime failed, or a text is not valid Unicode.
        """
        sequences = [self._tokenizer.pair(question, passage) for question, passage in pairs]
        scores = np.empty(len(pairs), dtype=np.float32)
        for batch in plan_batches([len(sequence.ids) for sequence in sequences], _BATCH_TOKENS):
            scores[list(batch.rows)] = self._run([sequences[row] for row in batch.rows], batch.width)
        return scores

    def _run(self, sequences: Sequence[TokenizedText], width: int) -> NDArray[np.float32]:
        arrays = {name: np.zeros((len(sequences), width), dtype=np.int64) for name in _INPUTS}
        for row, sequence in enumerate(sequences):
            length = len(sequence.ids)
            arrays["input_ids"][row, :length] = sequence.ids
            arrays["attention_mask"][row, :length] = 1
            arrays["token_type_ids"][row, :length] = sequence.type_ids
        try:
            output = np.asarray(self._session.run(None, {name: arrays[name] for name in self._inputs})[0])
        except Exception as error:
            raise InferenceFailed(f"{self.name}: the cross-encoder failed: {error}") from error
        if output.size != len(sequences) or not np.isfinite(output).all():
            raise InferenceFailed(
                f"{self.name}: {len(sequences)} scores were expected, the output has shape {list(output.shape)}"
                + ("" if np.isfinite(output).all() else " and holds values that are not numbers")
            )
        return output.reshape(-1).astype(np.float32)
