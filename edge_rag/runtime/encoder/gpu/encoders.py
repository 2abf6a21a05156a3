"""Encoders on a GPU, through CUDA, TensorRT or any provider that runs padded graphs: one graph for all shapes.

A text is padded to a length that follows from its own, and a rectangle of that length always has the same number of
rows. So a text meets the same shapes whichever texts it is batched with, and a provider meets few shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray

from edge_rag.core.placement import Precision, Provider
from edge_rag.errors import ModelFolderInvalid, ModelNotLowerable, ProviderUnavailable
from edge_rag.runtime.encoder.bert_graph import Floats
from edge_rag.runtime.encoder.bert_network import BertParts, read_network
from edge_rag.runtime.encoder.cross_encoder import PairEncoder
from edge_rag.runtime.encoder.gpu.graph import (
    INPUT_IDS,
    LOWERING,
    MASK,
    POSITIONS,
    TYPES,
    graph_inputs,
    padded_graph,
)
from edge_rag.runtime.encoder.npu.calibration import PASSAGES
from edge_rag.runtime.encoder.text_encoder import SENTENCE_VECTORS, TOKEN_VECTORS, TextEncoder
from edge_rag.runtime.encoder.tokenizer import LONGEST, TextTokenizer, TokenizedText, graph_lengths
from edge_rag.runtime.model_folder.folder import ModelManifest, ModelRole, verify_model_folder
from edge_rag.runtime.session.compile_cache import CompiledGraphs, CompiledKey
from edge_rag.runtime.session.process import trim_malloc
from edge_rag.runtime.session.providers import SPECS
from edge_rag.runtime.session.providers.spec import GraphRequest, ShapeRange
from edge_rag.runtime.session.sessions import (
    LIBRARY_OPTION,
    SessionTarget,
    check_installed,
    compiler_identity,
    device_identity,
    open_session,
    plugin_library,
    provider_failure,
)

_MODEL: Final = "model.onnx"
_TOKENIZER: Final = "tokenizer.json"
_RUN_TOKENS: Final = 512
"""Tokens of a rectangle, padding included; as many as a packed run on the cores has."""
_USUAL_LENGTH: Final = 128
"""Length of most chunks, tokens; see ``graph_lengths``."""


@dataclass(frozen=True, slots=True)
class EngineIdentity:
    """The versions and the device that a compiled engine fits, besides its model."""

    libraries: str
    device: str


@dataclass(frozen=True, slots=True)
class GpuTarget:
    """Where an encoder runs.

    Attributes:
        precision: FP16 or FP32.
    """

    provider: Provider
    precision: Precision
    options: Mapping[str, str]
    identity: EngineIdentity
    compiled: Path


@dataclass(frozen=True, slots=True)
class ShapeReady:
    """An encoder has run texts of one length.

    Attributes:
        number: Number of the length, from 1.
        compiled: Whether an engine was built now; False where it was cached, or where the provider builds none.
    """

    model: str
    provider: Provider
    tokens: int
    number: int
    total: int
    compiled: bool


@dataclass(frozen=True, slots=True)
class EngineBuildStarted:
    """The build of an engine has started, which takes minutes."""

    model: str
    provider: Provider


OnProgress = Callable[[EngineBuildStarted | ShapeReady], None]


def vector_form(precision: Precision) -> str:
    """Names the vectors of a precision: they are close to those of the original graph, but not the same."""
    return f"{precision.value}.{LOWERING}"


def open_text_encoder_on_gpu(folder: Path, target: GpuTarget, on_progress: OnProgress) -> TextEncoder:
    """Opens a model folder of the role ``embedder``; see ``TextEncoder.open``.

    Args:
        on_progress: Called when an engine's build starts, and for each length after its first run.
    """
    check_installed(SessionTarget(target.provider, target.options))
    manifest = verify_model_folder(folder, ModelRole.EMBEDDER, required=(_MODEL, _TOKENIZER))
    tokenizer = _tokenizer(folder, manifest)
    parts = _parts(folder, target.provider)
    dimension = manifest.integer("dimension", 1, 65_536)
    if parts.pooling is None or parts.hidden != dimension:
        raise ModelFolderInvalid(f"{folder}: {_MODEL} is not a text encoder of the dimension in its manifest")
    runner = _open(parts, manifest, tokenizer, target, "sentence_vectors", on_progress)
    return TextEncoder(PaddedTextGraph(runner, dimension), tokenizer, manifest, vector_form(target.precision))


def open_pair_encoder_on_gpu(folder: Path, target: GpuTarget, on_progress: OnProgress) -> PairEncoder:
    """Opens a model folder of the role ``reranker``; see ``PairEncoder.open`` and ``open_text_encoder_on_gpu``."""
    check_installed(SessionTarget(target.provider, target.options))
    manifest = verify_model_folder(folder, ModelRole.RERANKER, required=(_MODEL, _TOKENIZER))
    tokenizer = _tokenizer(folder, manifest)
    parts = _parts(folder, target.provider)
    if parts.classifier is None:
        raise ModelFolderInvalid(f"{folder}: {_MODEL} is not a cross-encoder")
    graph = PaddedPairGraph(_open(parts, manifest, tokenizer, target, "scores", on_progress))
    return PairEncoder(graph, tokenizer, manifest, vector_form(target.precision))


def rows_of(length: int) -> int:
    return max(1, _RUN_TOKENS // length)


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A padded batch.

    Attributes:
        texts: Numbers of the texts, at least one and no more than ``rows_of(length)``.
    """

    length: int
    texts: tuple[int, ...]


def plan_rectangles(texts: Sequence[int], lengths: Sequence[int]) -> list[Rectangle]:
    """Groups texts by the shortest length that holds them, shortest first; every text is in exactly one group.

    Args:
        texts: Tokens of each text, none more than the last length.
    """
    by_length: dict[int, list[int]] = {length: [] for length in lengths}
    for number, tokens in enumerate(texts):
        by_length[next(length for length in lengths if length >= tokens)].append(number)
    return [
        Rectangle(length, tuple(members[first : first + rows_of(length)]))
        for length, members in by_length.items()
        for first in range(0, len(members), rows_of(length))
    ]


class PaddedRunner:
    """Runs an opened ``padded_graph``. Any thread.

    Attributes:
        lengths: Lengths that texts are padded to, tokens, ascending.
    """

    def __init__(self, session: ort.InferenceSession, lengths: Sequence[int]) -> None:
        self._session = session
        self._types = TYPES in {value.name for value in session.get_inputs()}
        self.lengths = tuple(lengths)

    def run(
        self, outputs: Sequence[str], ids: Sequence[Sequence[int]], types: Sequence[Sequence[int]]
    ) -> Iterator[tuple[int, tuple[Floats, ...]]]:
        """Runs texts; yields each text's number and its row of each output, padding included.

        Args:
            ids: Token ids of each text, at least one and no more than the last length.
        """
        for rectangle in plan_rectangles([len(each) for each in ids], self.lengths):
            inputs = self._inputs(rectangle, ids, types)
            rows = zip(*self._session.run(list(outputs), inputs), strict=True)
            yield from zip(rectangle.texts, rows, strict=False)

    def _inputs(
        self, rectangle: Rectangle, ids: Sequence[Sequence[int]], types: Sequence[Sequence[int]]
    ) -> dict[str, NDArray[np.int64]]:
        shape = (rows_of(rectangle.length), rectangle.length)
        tokens, mask, kinds = (np.zeros(shape, np.int64) for _ in range(3))
        # A row without a token would be divided by zero.
        mask[:, 0] = 1
        for row, number in enumerate(rectangle.texts):
            length = len(ids[number])
            tokens[row, :length] = ids[number]
            mask[row, :length] = 1
            kinds[row, :length] = types[number]
        positions = np.broadcast_to(np.arange(shape[1], dtype=np.int64), shape).copy()
        return {INPUT_IDS: tokens, POSITIONS: positions, MASK: mask} | ({TYPES: kinds} if self._types else {})


class PaddedTextGraph:
    """Implements ``TextGraph``."""

    def __init__(self, runs: PaddedRunner, dimension: int) -> None:
        self._runs = runs
        self._dimension = dimension

    def sentence_vectors(self, texts: Sequence[Sequence[int]]) -> Floats:
        vectors = np.empty((len(texts), self._dimension), np.float32)
        for number, (vector,) in self._run([SENTENCE_VECTORS], texts):
            vectors[number] = vector
        return vectors

    def token_vectors(self, texts: Sequence[Sequence[int]]) -> list[Floats]:
        made = dict(self._run([TOKEN_VECTORS], texts))
        return [made[number][0][: len(ids)] for number, ids in enumerate(texts)]

    def all_vectors(self, texts: Sequence[Sequence[int]]) -> tuple[Floats, list[Floats]]:
        made = dict(self._run([SENTENCE_VECTORS, TOKEN_VECTORS], texts))
        sentences = np.array([made[number][0] for number in range(len(texts))], np.float32)
        tokens = [made[number][1][: len(ids)] for number, ids in enumerate(texts)]
        return sentences.reshape(len(texts), self._dimension), tokens

    def _run(self, outputs: Sequence[str], texts: Sequence[Sequence[int]]) -> Iterator[tuple[int, tuple[Floats, ...]]]:
        return self._runs.run(outputs, texts, [[0] * len(ids) for ids in texts])

    def keep_memory(self, keep: bool) -> None:
        """Does nothing: results are in the device's memory, within the provider's limit."""


class PaddedPairGraph:
    """Implements ``PairGraph``."""

    def __init__(self, runs: PaddedRunner) -> None:
        self._runs = runs

    def score(self, sequences: Sequence[TokenizedText]) -> Floats:
        scores = np.empty(len(sequences), np.float32)
        ids, types = [pair.ids for pair in sequences], [pair.type_ids for pair in sequences]
        for number, (score,) in self._runs.run(["scores"], ids, types):
            scores[number] = score[0]
        return scores

    def keep_memory(self, keep: bool) -> None:
        """Does nothing: results are in the device's memory, within the provider's limit."""


def shape_range(lengths: Sequence[int]) -> ShapeRange:
    """Returns the shapes of rectangles of these lengths, at least one."""
    rows = [rows_of(length) for length in lengths]
    usual = min(lengths, key=lambda length: abs(length - _USUAL_LENGTH))
    return ShapeRange((min(rows), min(lengths)), (rows_of(usual), usual), (max(rows), max(lengths)))


def _tokenizer(folder: Path, manifest: ModelManifest) -> TextTokenizer:
    return TextTokenizer.open(folder / _TOKENIZER, min(manifest.integer("max_tokens", 8, 65_536), LONGEST))


def _parts(folder: Path, provider: Provider) -> BertParts:
    try:
        return read_network(onnx.load(folder / _MODEL))
    except ModelNotLowerable as error:
        raise ProviderUnavailable(provider.value, f"{folder / _MODEL}: {error}") from error


def _open(
    parts: BertParts,
    manifest: ModelManifest,
    tokenizer: TextTokenizer,
    target: GpuTarget,
    output: str,
    on_progress: OnProgress,
) -> PaddedRunner:
    lengths = graph_lengths(tokenizer.max_tokens)
    graph = padded_graph(parts, target.precision).SerializeToString(deterministic=True)
    session_target = SessionTarget(target.provider, target.options)
    cache = _cache(manifest, target, session_target)
    cached = cache.remove_unverified() if cache is not None else 0
    request = GraphRequest(
        precision=target.precision,
        bytes=len(graph),
        shapes=dict.fromkeys(graph_inputs(parts), shape_range(lengths)),
        cache=None if cache is None else cache.folder,
        plugin=plugin_library(session_target),
    )
    options = SPECS[target.provider].session_options(target.options, request)
    session_target = replace(session_target, options=options)
    compiled = cache is not None and cached == 0
    if compiled:
        on_progress(EngineBuildStarted(manifest.name, target.provider))
    runner = PaddedRunner(open_session(graph, target=session_target), lengths)
    for number, length in enumerate(lengths, start=1):
        _warm_up(runner, tokenizer, session_target, output, length)
        on_progress(ShapeReady(manifest.name, target.provider, length, number, len(lengths), compiled))
    if cache is not None:
        cache.record()
        cache.remove_other_keys()
    trim_malloc()
    return runner


def _cache(manifest: ModelManifest, target: GpuTarget, session_target: SessionTarget) -> CompiledGraphs | None:
    """Opens the cache of a provider that writes compiled graphs to a folder; returns None for others."""
    spec = SPECS[target.provider]
    if spec.cache is None:
        return None
    if spec.plugin is None:
        compiler, device = f"onnxruntime {ort.__version__}, {target.identity.libraries}", target.identity.device
    else:
        compiler, device = compiler_identity(session_target), device_identity(session_target)
    files = "; ".join(f"{path} {record.sha256}" for path, record in sorted(manifest.files.items()))
    key = CompiledKey(
        model=f"{manifest.role.value}; {files}",
        lowering=vector_form(target.precision),
        compiler=compiler,
        device=device,
        options={name: value for name, value in target.options.items() if name != LIBRARY_OPTION},
    )
    return CompiledGraphs(target.compiled, f"{manifest.name}-{target.provider.value}", key)


def _warm_up(runner: PaddedRunner, tokenizer: TextTokenizer, target: SessionTarget, output: str, length: int) -> None:
    """Runs a text of a length, so that the first question does not wait for compilation or allocation."""
    (ids,) = tokenizer.truncated_ids([" ".join(PASSAGES * (length // 64 + 1))])
    try:
        ((_, (result,)),) = runner.run([output], [ids[:length]], [[0] * len(ids[:length])])
    except Exception as error:
        raise provider_failure(error, target, f"a graph of {length} tokens") from error
    if not np.isfinite(result).all():
        raise ProviderUnavailable(
            target.provider.value, f'what it computes are no numbers; set its precision to "{Precision.FP32.value}"'
        )
