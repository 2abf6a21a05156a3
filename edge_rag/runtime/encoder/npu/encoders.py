"""Encoders on an NPU: quantized graphs of fixed shapes, compiled once and cached.

One text runs at a time, through the shortest graph that holds it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import onnx
import onnxruntime as ort

from edge_rag.core.placement import Precision, Provider
from edge_rag.errors import ModelFolderInvalid, ModelNotLowerable, ProviderUnavailable
from edge_rag.runtime.encoder.bert_graph import Floats, Pooling
from edge_rag.runtime.encoder.bert_network import BertParts, TokenTables, read_network
from edge_rag.runtime.encoder.cross_encoder import PairEncoder
from edge_rag.runtime.encoder.npu.calibration import PASSAGES, QUESTIONS, Calibration, calibrate, padded_inputs
from edge_rag.runtime.encoder.npu.graph import LOWERING, fixed_graph
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.encoder.tokenizer import LONGEST, TextTokenizer, TokenizedText, graph_lengths
from edge_rag.runtime.model_folder.folder import ModelManifest, ModelRole, verify_model_folder
from edge_rag.runtime.session.compile_cache import CompiledGraphs, CompiledKey
from edge_rag.runtime.session.process import trim_malloc
from edge_rag.runtime.session.providers import SPECS
from edge_rag.runtime.session.providers.spec import GraphRequest
from edge_rag.runtime.session.sessions import (
    LIBRARY_OPTION,
    SessionTarget,
    compile_graph,
    compiler_identity,
    device_identity,
    open_session,
    plugin_library,
)

_MODEL: Final = "model.onnx"
_TOKENIZER: Final = "tokenizer.json"
_MASK: Final = "mask"
FORM: Final = f"a16w8.{LOWERING}"
"""Names the vectors of this form: they are close to those of the original graph, but not the same."""


@dataclass(frozen=True, slots=True)
class GraphReady:
    """One of a model's graphs can be run.

    Attributes:
        number: Number of the graph, from 1.
        compiled: Whether it was compiled now; False where it was cached.
    """

    model: str
    tokens: int
    number: int
    total: int
    compiled: bool


OnProgress = Callable[[GraphReady], None]


def open_text_encoder_on_npu(
    folder: Path, options: Mapping[str, str], cache: Path, on_progress: OnProgress
) -> TextEncoder:
    """Opens a model folder of the role ``embedder``; see ``TextEncoder.open``."""
    manifest = verify_model_folder(folder, ModelRole.EMBEDDER, required=(_MODEL, _TOKENIZER))
    tokenizer = _tokenizer(folder, manifest)
    parts = _parts(folder)
    if parts.pooling is None or parts.hidden != manifest.integer("dimension", 1, 65_536):
        raise ModelFolderInvalid(f"{folder}: {_MODEL} is not a text encoder of the dimension in its manifest")
    texts = [window for text in (*QUESTIONS, *PASSAGES) for window in tokenizer.windows(text)]
    graphs = _open(parts, manifest, tokenizer, texts, npu_target(options), cache, on_progress)
    return TextEncoder(FixedTextGraph(graphs, parts.pooling), tokenizer, manifest, FORM)


def open_pair_encoder_on_npu(
    folder: Path, options: Mapping[str, str], cache: Path, on_progress: OnProgress
) -> PairEncoder:
    """Opens a model folder of the role ``reranker``; see ``PairEncoder.open`` and ``open_text_encoder_on_npu``."""
    manifest = verify_model_folder(folder, ModelRole.RERANKER, required=(_MODEL, _TOKENIZER))
    tokenizer = _tokenizer(folder, manifest)
    parts = _parts(folder)
    if parts.classifier is None:
        raise ModelFolderInvalid(f"{folder}: {_MODEL} is not a cross-encoder")
    # Matching and non-matching pairs: steps combine each question with several passages.
    pairs = [
        tokenizer.pair(QUESTIONS[(number + step) % len(QUESTIONS)], passage)
        for number, passage in enumerate(PASSAGES)
        for step in (0, 1, 3)
    ]
    graphs = _open(parts, manifest, tokenizer, pairs, npu_target(options), cache, on_progress)
    return PairEncoder(FixedPairs(graphs), tokenizer, manifest, FORM)


def npu_target(options: Mapping[str, str]) -> SessionTarget:
    """Returns the target of sessions that run wholly on the NPU.

    Args:
        options: Options of the QNN provider; without a backend, the plugin's own is used.
    """
    library = plugin_library(SessionTarget(Provider.QNN, options))
    request = GraphRequest(Precision.A16W8, shapes={}, bytes=0, cache=None, plugin=library)
    return SessionTarget(Provider.QNN, SPECS[Provider.QNN].session_options(options, request))


def _tokenizer(folder: Path, manifest: ModelManifest) -> TextTokenizer:
    return TextTokenizer.open(folder / _TOKENIZER, min(manifest.integer("max_tokens", 8, 65_536), LONGEST))


def _parts(folder: Path) -> BertParts:
    try:
        return read_network(onnx.load(folder / _MODEL))
    except ModelNotLowerable as error:
        raise ProviderUnavailable(Provider.QNN.value, f"{folder / _MODEL}: {error}") from error


def _open(
    parts: BertParts,
    manifest: ModelManifest,
    tokenizer: TextTokenizer,
    texts: list[TokenizedText],
    target: SessionTarget,
    cache: Path,
    on_progress: OnProgress,
) -> FixedGraphs:
    lengths = graph_lengths(tokenizer.max_tokens)
    compiled = CompiledGraphs(cache, f"{manifest.name}-{target.provider.value}", _key(manifest, target))
    mask = compiled.value(_MASK)
    found = {length: compiled.find(f"{length}.onnx") if mask is not None else None for length in lengths}
    calibration: Calibration | None = None
    sessions = {}
    for number, (length, there) in enumerate(found.items(), start=1):
        path = there
        if path is None:
            calibration = calibration or calibrate(parts, texts)
            graph = fixed_graph(parts, length, calibration.ranges).model
            content = compile_graph(graph.SerializeToString(deterministic=True), target)
            path = compiled.store(f"{length}.onnx", content, {_MASK: calibration.mask})
            mask = calibration.mask
        sessions[length] = open_session(path, target=target)
        on_progress(GraphReady(manifest.name, length, number, len(found), compiled=there is None))
    compiled.remove_other_keys()
    if calibration is not None:
        # Compiling takes three times the memory of running.
        trim_malloc()
    assert mask is not None
    return FixedGraphs(parts.tables, mask, sessions, threading.Lock())


def _key(manifest: ModelManifest, target: SessionTarget) -> CompiledKey:
    files = "; ".join(f"{path} {record.sha256}" for path, record in sorted(manifest.files.items()))
    plugin = target.spec.plugin
    paths = (LIBRARY_OPTION, None if plugin is None else plugin.backend_option)
    return CompiledKey(
        model=f"{manifest.role.value}; {files}",
        lowering=FORM,
        compiler=compiler_identity(target),
        device=device_identity(target),
        options={name: value for name, value in target.options.items() if name not in paths},
    )


@dataclass(frozen=True, slots=True, eq=False)
class FixedGraphs:
    """The opened graphs of an encoder. May be run from any thread; the processor runs one text at a time."""

    tables: TokenTables
    mask: float
    sessions: Mapping[int, ort.InferenceSession]
    turn: threading.Lock

    def run(self, ids: Sequence[int], types: Sequence[int]) -> Floats:
        """Returns the output of the shortest graph that holds a text, padding included.

        Args:
            ids: Token ids, at least one and at most the longest graph's.
        """
        length = min(length for length in self.sessions if length >= len(ids))
        vectors = self.tables.look_up(np.array(ids, np.int64), np.array(types, np.int64))
        inputs = padded_inputs(vectors, length, self.mask)
        with self.turn:
            result: Floats = self.sessions[length].run(None, inputs)[0]
        return result


class FixedTextGraph:
    """Implements ``TextGraph``."""

    def __init__(self, graphs: FixedGraphs, pooling: Pooling) -> None:
        self._graphs = graphs
        self._pooling = pooling

    def sentence_vectors(self, texts: Sequence[Sequence[int]]) -> Floats:
        return self._pooled([self._hidden(ids) for ids in texts])

    def token_vectors(self, texts: Sequence[Sequence[int]]) -> list[Floats]:
        return [_unit(self._hidden(ids)) for ids in texts]

    def all_vectors(self, texts: Sequence[Sequence[int]]) -> tuple[Floats, list[Floats]]:
        hidden = [self._hidden(ids) for ids in texts]
        return self._pooled(hidden), [_unit(rows) for rows in hidden]

    def keep_memory(self, keep: bool) -> None:
        """Does nothing: the NPU's driver owns the memory."""

    def _pooled(self, hidden: Sequence[Floats]) -> Floats:
        pooled = [rows.mean(axis=0) if self._pooling is Pooling.MEAN else rows[0] for rows in hidden]
        return _unit(np.stack(pooled)) if pooled else np.empty((0, self._graphs.tables.positions.shape[1]), np.float32)

    def _hidden(self, ids: Sequence[int]) -> Floats:
        return self._graphs.run(ids, [0] * len(ids))[: len(ids)]


class FixedPairs:
    """Implements ``PairGraph``."""

    def __init__(self, graphs: FixedGraphs) -> None:
        self._graphs = graphs

    def score(self, sequences: Sequence[TokenizedText]) -> Floats:
        return np.array([self._graphs.run(pair.ids, pair.type_ids)[0, 0] for pair in sequences], np.float32)

    def keep_memory(self, keep: bool) -> None:
        """Does nothing: the NPU's driver owns the memory."""


def _unit(rows: Floats) -> Floats:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: Floats = rows / np.maximum(lengths, np.float32(1e-12))
    return unit
