"""Opens encoders on a Qualcomm NPU: graphs of fixed shapes, quantized, compiled once and kept."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import onnx

from edge_rag.core.placement import Provider
from edge_rag.errors import ModelFolderInvalid, ModelNotLowerable, ProviderUnavailable
from edge_rag.runtime.encoder.batching import LONGEST, graph_lengths
from edge_rag.runtime.encoder.bert_parts import BertParts, take_apart
from edge_rag.runtime.encoder.cross_encoder import PairEncoder
from edge_rag.runtime.encoder.npu.calibration import Calibration, calibrate
from edge_rag.runtime.encoder.npu.calibration_texts import PASSAGES, QUESTIONS
from edge_rag.runtime.encoder.npu.fixed_encoders import FixedGraphs, FixedPairs, FixedTextGraph
from edge_rag.runtime.encoder.npu.fixed_graph import LOWERING, fixed_graph
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.encoder.tokenizer import TextTokenizer, TokenizedText
from edge_rag.runtime.model_folder.folder import ModelManifest, ModelRole, verify_model_folder
from edge_rag.runtime.session.compile_cache import CompiledGraphs, CompiledKey
from edge_rag.runtime.session.process import give_back_free_memory
from edge_rag.runtime.session.providers import (
    LIBRARY_OPTION,
    ProviderDemand,
    compiler_identity,
    device_identity,
    plugin_library,
)
from edge_rag.runtime.session.sessions import compile_graph, open_session

_MODEL: Final = "model.onnx"
_TOKENIZER: Final = "tokenizer.json"
_BACKEND: Final = "backend_path"
_HTP: Final = "libQnnHtp.so"
_MASK: Final = "mask"
FORM: Final = f"a16w8.{LOWERING}"
"""Names the vectors of this form: they are close to those of the original, but not the same."""


@dataclass(frozen=True, slots=True)
class GraphReady:
    """One of a model's graphs is ready to be run.

    Attributes:
        model: Name of the model.
        tokens: Length of the graph.
        number: Which one it is, from 1.
        of: How many there are.
        compiled: Whether it was compiled now; if not, it was there.
    """

    model: str
    tokens: int
    number: int
    of: int
    compiled: bool


Told = Callable[[GraphReady], None]


def open_text_encoder_on_npu(folder: Path, options: Mapping[str, str], cache: Path, told: Told) -> TextEncoder:
    """Opens a model folder of the role ``embedder``; see ``TextEncoder.open``.

    Args:
        folder: The model folder.
        options: Options of the QNN provider.
        cache: Where compiled graphs are kept.
        told: Hears of each graph.

    Raises:
        ModelFolderInvalid: The folder is not what its manifest says, or not such a model.
        ProviderUnavailable: There is no NPU, its plugin is missing, or the model has no form for it.
        StorageError: Compiled graphs cannot be kept.
    """
    manifest = verify_model_folder(folder, ModelRole.EMBEDDER, required=(_MODEL, _TOKENIZER))
    tokenizer = _tokenizer(folder, manifest)
    parts = _parts(folder)
    if parts.pooling is None or parts.hidden != manifest.integer("dimension", 1, 65_536):
        raise ModelFolderInvalid(f"{folder}: {_MODEL} is not a text encoder of the dimension its manifest says")
    texts = [window for text in (*QUESTIONS, *PASSAGES) for window in tokenizer.windows(text)]
    graphs = _open(parts, manifest, tokenizer, texts, npu_demand(options), cache, told)
    return TextEncoder(FixedTextGraph(graphs, parts.pooling), tokenizer, manifest, FORM)


def open_pair_encoder_on_npu(folder: Path, options: Mapping[str, str], cache: Path, told: Told) -> PairEncoder:
    """Opens a model folder of the role ``reranker``; see ``PairEncoder.open`` and ``open_text_encoder_on_npu``."""
    manifest = verify_model_folder(folder, ModelRole.RERANKER, required=(_MODEL, _TOKENIZER))
    tokenizer = _tokenizer(folder, manifest)
    parts = _parts(folder)
    if parts.judge is None:
        raise ModelFolderInvalid(f"{folder}: {_MODEL} is not a cross-encoder")
    # Neighbours go together or not, and every question meets every kind of passage.
    pairs = [
        tokenizer.pair(QUESTIONS[(number + step) % len(QUESTIONS)], passage)
        for number, passage in enumerate(PASSAGES)
        for step in (0, 1, 3)
    ]
    graphs = _open(parts, manifest, tokenizer, pairs, npu_demand(options), cache, told)
    return PairEncoder(FixedPairs(graphs), tokenizer, manifest, FORM)


def npu_demand(options: Mapping[str, str]) -> ProviderDemand:
    """Returns what has a session run on the NPU, all of it.

    Args:
        options: Options of the QNN provider; without a backend, the plugin's own.

    Raises:
        ProviderUnavailable: The plugin or its backend is not there.
    """
    own = dict(options)
    library = plugin_library(ProviderDemand(Provider.QNN, own))
    own.setdefault(_BACKEND, str(library.with_name(_HTP)))
    if not Path(own[_BACKEND]).is_file():
        raise ProviderUnavailable(Provider.QNN.value, f"its backend {own[_BACKEND]} is not there")
    # The NPU rounds inputs and outputs too; else two nodes would be left to the CPU.
    own["offload_graph_io_quantization"] = "0"
    return ProviderDemand(Provider.QNN, own)


def _tokenizer(folder: Path, manifest: ModelManifest) -> TextTokenizer:
    return TextTokenizer.open(folder / _TOKENIZER, min(manifest.integer("max_tokens", 8, 65_536), LONGEST))


def _parts(folder: Path) -> BertParts:
    try:
        return take_apart(onnx.load(folder / _MODEL))
    except ModelNotLowerable as error:
        raise ProviderUnavailable(Provider.QNN.value, f"{folder / _MODEL}: {error}") from error


def _open(
    parts: BertParts,
    manifest: ModelManifest,
    tokenizer: TextTokenizer,
    texts: list[TokenizedText],
    demand: ProviderDemand,
    cache: Path,
    told: Told,
) -> FixedGraphs:
    lengths = graph_lengths(tokenizer.max_tokens)
    kept = CompiledGraphs(cache, f"{manifest.name}-{demand.provider.value}", _key(manifest, demand))
    mask = kept.value(_MASK)
    found = {length: kept.find(f"{length}.onnx") if mask is not None else None for length in lengths}
    calibration: Calibration | None = None
    sessions = {}
    for number, (length, there) in enumerate(found.items(), start=1):
        path = there
        if path is None:
            calibration = calibration or calibrate(parts, texts)
            graph = fixed_graph(parts, length, calibration.ranges).model
            content = compile_graph(graph.SerializeToString(deterministic=True), demand)
            path = kept.keep(f"{length}.onnx", content, {_MASK: calibration.mask})
            mask = calibration.mask
        sessions[length] = open_session(path, demand=demand)
        told(GraphReady(manifest.name, length, number, len(found), compiled=there is None))
    kept.drop_others()
    if calibration is not None:
        # Compiling took three times what running does.
        give_back_free_memory()
    assert mask is not None
    return FixedGraphs(parts.tables, mask, sessions, threading.Lock())


def _key(manifest: ModelManifest, demand: ProviderDemand) -> CompiledKey:
    files = "; ".join(f"{path} {record.sha256}" for path, record in sorted(manifest.files.items()))
    paths = (_BACKEND, LIBRARY_OPTION)
    return CompiledKey(
        model=f"{manifest.role.value}; {files}",
        lowering=FORM,
        compiler=compiler_identity(demand),
        device=device_identity(demand),
        options={name: value for name, value in demand.options.items() if name not in paths},
    )
