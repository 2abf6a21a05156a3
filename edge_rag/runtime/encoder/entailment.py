"""The entailment model: judges whether a premise entails a hypothesis, says nothing about it, or contradicts it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edge_rag.errors import InferenceFailed, ModelFolderInvalid
from edge_rag.runtime.encoder.cross_encoder import PairGraph, pair_graph
from edge_rag.runtime.encoder.tokenizer import TextTokenizer
from edge_rag.runtime.model_folder.folder import ModelManifest, ModelRole, verify_model_folder
from edge_rag.runtime.model_folder.manifest import ENTAILMENT_LABELS
from edge_rag.runtime.model_folder.strict_json import parse_object
from edge_rag.runtime.session.sessions import open_session, ops_library

_MODEL: Final = "model.onnx"
_TOKENIZER: Final = "tokenizer.json"
_CONFIG: Final = "config.json"
LABELS: Final = ENTAILMENT_LABELS
"""What is told apart, in the order of the probabilities."""


class EntailmentModel:
    """A sequence classifier of pairs from a model folder, on processor cores. Any method may be called by any thread.

    Attributes:
        max_tokens: Most tokens of a pair, special tokens included.
    """

    def __init__(
        self, graph: PairGraph, tokenizer: TextTokenizer, manifest: ModelManifest, columns: Sequence[int]
    ) -> None:
        self._graph = graph
        self._tokenizer = tokenizer
        self._columns = list(columns)
        self.name = manifest.name
        self.max_tokens = tokenizer.max_tokens

    @classmethod
    def open(cls, folder: Path) -> EntailmentModel:
        """Verifies and opens a model folder of the role ``entailment``.

        The graph is one of ``PairEncoder.open``, of premise and hypothesis, with logits float [pairs, 3] as output. The
        labels of their columns are ``id2label`` in config.json. The manifest's parameters are ``max_tokens``.

        Raises:
            ModelFolderInvalid: The folder does not match its manifest, or has another kind of model.
        """
        manifest = verify_model_folder(folder, ModelRole.ENTAILMENT, required=(_MODEL, _TOKENIZER, _CONFIG))
        columns = label_columns(folder)
        tokenizer = TextTokenizer.open(folder / _TOKENIZER, manifest.integer("max_tokens", 8, 65_536))
        graph = pair_graph(open_session(folder / _MODEL, ops_library()))
        if graph is None:
            raise ModelFolderInvalid(f"{folder}: {_MODEL} is not a classifier of pairs with one output")
        return cls(graph, tokenizer, manifest, columns)

    def keep_memory(self, keep: bool) -> None:
        self._graph.keep_memory(keep)

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Returns how likely each premise entails its hypothesis, says nothing about it, or contradicts it.

        A pair that is longer than the model reads is neutral: half of a sentence proves nothing.

        Returns:
            float32 [pairs, 3] in the order of ``LABELS``; each row sums to 1.

        Raises:
            InferenceFailed: ONNX Runtime failed, or a text is not valid Unicode.
        """
        probabilities = np.tile(np.array([0, 1, 0], np.float32), (len(pairs), 1))
        # Each count has the special tokens of one text, and a pair never has more than both.
        fitting = [
            row for row, pair in enumerate(pairs) if sum(map(self._tokenizer.count, pair)) <= self._tokenizer.max_tokens
        ]
        if not fitting:
            return probabilities
        sequences = [self._tokenizer.pair(*pairs[row]) for row in fitting]
        try:
            logits = self._graph.score(sequences)
        except Exception as error:
            raise InferenceFailed(f"{self.name}: the entailment model failed: {error}") from error
        if logits.shape != (len(fitting), len(LABELS)) or not np.isfinite(logits).all():
            raise InferenceFailed(
                f"{self.name}: finite logits of shape {(len(fitting), len(LABELS))} were expected, {logits.shape} came"
            )
        probabilities[fitting] = label_probabilities(logits.astype(np.float32), self._columns)
        return probabilities


def label_probabilities(logits: NDArray[np.float32], columns: Sequence[int]) -> NDArray[np.float32]:
    """Returns the probabilities of ``LABELS``, float32 [pairs, 3].

    Args:
        logits: float32 [pairs, 3].
    """
    ordered = logits[:, list(columns)]
    odds = np.exp(ordered - ordered.max(axis=1, keepdims=True))
    shares: NDArray[np.float32] = odds / odds.sum(axis=1, keepdims=True)
    return shares


def label_columns(folder: Path) -> list[int]:
    """Returns the column of the logits of each of ``LABELS``, by ``id2label`` in a folder's config.json.

    Raises:
        ModelFolderInvalid: It names other labels, or none.
    """
    try:
        labels = parse_object((folder / _CONFIG).read_bytes())["id2label"]
        if not isinstance(labels, dict):
            raise ValueError("id2label is no object")
        columns = {str(label).lower(): int(column) for column, label in labels.items()}
        if sorted(columns) != sorted(LABELS) or sorted(columns.values()) != [0, 1, 2]:
            raise ValueError(f"id2label must name {', '.join(LABELS)}")
    except (OSError, KeyError, ValueError) as error:
        raise ModelFolderInvalid(f"{folder}: {_CONFIG} does not tell the labels of the logits: {error}") from error
    return [columns[label] for label in LABELS]
