"""Opens encoders on a GPU, through CUDA, TensorRT or OpenVINO: one graph for all shapes, in fp16 or fp32."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import onnx
import onnxruntime as ort

from edge_rag.core.placement import Precision, Provider
from edge_rag.errors import ModelFolderInvalid, ModelNotLowerable, ProviderUnavailable
from edge_rag.runtime.encoder.batching import LONGEST, graph_lengths
from edge_rag.runtime.encoder.bert_parts import BertParts, take_apart
from edge_rag.runtime.encoder.cross_encoder import PairEncoder
from edge_rag.runtime.encoder.gpu.padded_encoders import PaddedPairGraph, PaddedRuns, PaddedTextGraph
from edge_rag.runtime.encoder.gpu.padded_graph import LOWERING, graph_inputs, padded_graph
from edge_rag.runtime.encoder.gpu.provider_options import ShapeProfile, cuda_options, openvino_options, tensorrt_options
from edge_rag.runtime.encoder.npu.calibration_texts import PASSAGES
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.encoder.tokenizer import TextTokenizer
from edge_rag.runtime.model_folder.folder import ModelManifest, ModelRole, verify_model_folder
from edge_rag.runtime.session.compile_cache import CompiledGraphs, CompiledKey
from edge_rag.runtime.session.process import give_back_free_memory
from edge_rag.runtime.session.providers import (
    LIBRARY_OPTION,
    ProviderDemand,
    check_present,
    compiler_identity,
    device_identity,
    not_opened,
)
from edge_rag.runtime.session.sessions import open_session

_MODEL: Final = "model.onnx"
_TOKENIZER: Final = "tokenizer.json"


@dataclass(frozen=True, slots=True)
class GpuIdentity:
    """What an engine for an NVIDIA GPU fits, beside its model.

    Attributes:
        libraries: Versions of driver, CUDA and TensorRT.
        device: The GPU.
    """

    libraries: str
    device: str


@dataclass(frozen=True, slots=True)
class GpuPlace:
    """Where an encoder is to run.

    Attributes:
        provider: CUDA, TENSORRT or OPENVINO; CPU runs the same graph on the cores.
        precision: FP16 or FP32.
        options: Options of the provider, as ONNX Runtime names them.
        identity: What an engine of TensorRT fits.
        compiled: Folder of all that was compiled.
    """

    provider: Provider
    precision: Precision
    options: Mapping[str, str]
    identity: GpuIdentity
    compiled: Path


@dataclass(frozen=True, slots=True)
class ShapeReady:
    """An encoder has run texts of a length, and is ready for more.

    Attributes:
        model: Name of the model.
        provider: Where it runs.
        tokens: The length.
        number: Which length it is, from 1.
        of: How many there are.
        compiled: Whether an engine was built now; if not, it was there, or the provider builds none.
    """

    model: str
    provider: Provider
    tokens: int
    number: int
    of: int
    compiled: bool


@dataclass(frozen=True, slots=True)
class EngineBegun:
    """An engine is being built, which takes minutes.

    Attributes:
        model: Name of the model.
        provider: Where it will run.
    """

    model: str
    provider: Provider


Told = Callable[[EngineBegun | ShapeReady], None]


def vector_form(precision: Precision) -> str:
    """Names the vectors of a precision: they are close to those of the original, but not the same."""
    return f"{precision.value}.{LOWERING}"


def open_text_encoder_on_gpu(folder: Path, place: GpuPlace, told: Told) -> TextEncoder:
    """Opens a model folder of the role ``embedder``; see ``TextEncoder.open``.

    Args:
        folder: The model folder.
        place: Where it is to run.
        told: Hears of an engine that is built, and of each length that has been run.

    Raises:
        ModelFolderInvalid: The folder is not what its manifest says, or not such a model.
        ProviderUnavailable: The provider cannot be had, does not take the graph, has too little memory for it, or what
            it computes are no numbers; or the model has no form for it.
        StorageError: What is compiled cannot be kept.
    """
    check_present(ProviderDemand(place.provider, place.options))
    manifest = verify_model_folder(folder, ModelRole.EMBEDDER, required=(_MODEL, _TOKENIZER))
    tokenizer = _tokenizer(folder, manifest)
    parts = _parts(folder, place.provider)
    dimension = manifest.integer("dimension", 1, 65_536)
    if parts.pooling is None or parts.hidden != dimension:
        raise ModelFolderInvalid(f"{folder}: {_MODEL} is not a text encoder of the dimension its manifest says")
    runs = _open(parts, manifest, tokenizer, place, "sentence_vectors", told)
    return TextEncoder(PaddedTextGraph(runs, dimension), tokenizer, manifest, vector_form(place.precision))


def open_pair_encoder_on_gpu(folder: Path, place: GpuPlace, told: Told) -> PairEncoder:
    """Opens a model folder of the role ``reranker``; see ``PairEncoder.open`` and ``open_text_encoder_on_gpu``."""
    check_present(ProviderDemand(place.provider, place.options))
    manifest = verify_model_folder(folder, ModelRole.RERANKER, required=(_MODEL, _TOKENIZER))
    tokenizer = _tokenizer(folder, manifest)
    parts = _parts(folder, place.provider)
    if parts.judge is None:
        raise ModelFolderInvalid(f"{folder}: {_MODEL} is not a cross-encoder")
    graph = PaddedPairGraph(_open(parts, manifest, tokenizer, place, "scores", told))
    return PairEncoder(graph, tokenizer, manifest, vector_form(place.precision))


def _tokenizer(folder: Path, manifest: ModelManifest) -> TextTokenizer:
    return TextTokenizer.open(folder / _TOKENIZER, min(manifest.integer("max_tokens", 8, 65_536), LONGEST))


def _parts(folder: Path, provider: Provider) -> BertParts:
    try:
        return take_apart(onnx.load(folder / _MODEL))
    except ModelNotLowerable as error:
        raise ProviderUnavailable(provider.value, f"{folder / _MODEL}: {error}") from error


def _open(
    parts: BertParts,
    manifest: ModelManifest,
    tokenizer: TextTokenizer,
    place: GpuPlace,
    output: str,
    told: Told,
) -> PaddedRuns:
    lengths = graph_lengths(tokenizer.max_tokens)
    graph = padded_graph(parts, place.precision).SerializeToString(deterministic=True)
    kept = _kept(manifest, place)
    found = kept.clear_unvouched() if kept is not None else 0
    demand = _demand(parts, place, lengths, len(graph), kept)
    built = kept is not None and found == 0
    if built:
        told(EngineBegun(manifest.name, place.provider))
    runs = PaddedRuns(open_session(graph, demand=demand), lengths)
    for number, length in enumerate(lengths, start=1):
        _warm(runs, tokenizer, demand, output, length)
        told(ShapeReady(manifest.name, place.provider, length, number, len(lengths), built))
    if kept is not None:
        kept.vouch()
        kept.drop_others()
    give_back_free_memory()
    return runs


def _kept(manifest: ModelManifest, place: GpuPlace) -> CompiledGraphs | None:
    """Returns where a provider that compiles keeps what it has compiled; None for one that does not."""
    match place.provider:
        case Provider.TENSORRT:
            compiler, device = f"onnxruntime {ort.__version__}, {place.identity.libraries}", place.identity.device
        case Provider.OPENVINO:
            demand = ProviderDemand(place.provider, place.options)
            compiler, device = compiler_identity(demand), device_identity(demand)
        case _:
            return None
    files = "; ".join(f"{path} {record.sha256}" for path, record in sorted(manifest.files.items()))
    key = CompiledKey(
        model=f"{manifest.role.value}; {files}",
        lowering=vector_form(place.precision),
        compiler=compiler,
        device=device,
        options={name: value for name, value in place.options.items() if name != LIBRARY_OPTION},
    )
    return CompiledGraphs(place.compiled, f"{manifest.name}-{place.provider.value}", key)


def _demand(
    parts: BertParts, place: GpuPlace, lengths: tuple[int, ...], graph_bytes: int, kept: CompiledGraphs | None
) -> ProviderDemand:
    demand = ProviderDemand(place.provider, place.options)
    if place.provider is Provider.CUDA:
        return replace(demand, options=cuda_options(place.options, graph_bytes))
    if kept is None:
        return demand
    if place.provider is Provider.OPENVINO:
        return replace(demand, options=openvino_options(place.options, place.precision, kept.folder))
    shapes = ShapeProfile.of(lengths)
    return replace(
        demand, options=tensorrt_options(place.options, graph_inputs(parts), shapes, place.precision, kept.folder)
    )


def _warm(runs: PaddedRuns, tokenizer: TextTokenizer, demand: ProviderDemand, output: str, length: int) -> None:
    """Runs a text of a length, so that nothing is left to be compiled or allocated when the first question comes."""
    (ids,) = tokenizer.truncated_ids([" ".join(PASSAGES * (length // 64 + 1))])
    try:
        ((_, result),) = runs.run(output, [ids[:length]], [[0] * len(ids[:length])])
    except Exception as error:
        raise not_opened(error, demand, f"a graph of {length} tokens") from error
    if not np.isfinite(result).all():
        raise ProviderUnavailable(
            demand.provider.value, f'what it computes are no numbers; set its precision to "{Precision.FP32.value}"'
        )
