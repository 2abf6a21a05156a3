"""Opens embedder and cross-encoder where the device profile puts them.

Opening a stage on processor cores, the only provider there is a path for.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import structlog

from edge_rag.core.placement import Precision, Provider
from edge_rag.device.facts import DeviceFacts
from edge_rag.device.profile import ProviderChoice
from edge_rag.errors import ConfigurationError, ProviderUnavailable
from edge_rag.runtime.encoder.cross_encoder import PairEncoder
from edge_rag.runtime.encoder.gpu.opening import (
    EngineBegun,
    GpuIdentity,
    GpuPlace,
    ShapeReady,
    open_pair_encoder_on_gpu,
    open_text_encoder_on_gpu,
)
from edge_rag.runtime.encoder.npu.opening import GraphReady, open_pair_encoder_on_npu, open_text_encoder_on_npu
from edge_rag.runtime.encoder.text_encoder import TextEncoder

COMPILED_FOLDER: Final = "compiled"
"""Folder of the data directory that holds what was compiled for this device; may be removed at any time."""

_GPU_LIBRARIES: Final = ("libcudart", "libcudnn", "libnvinfer")
_GPU_PACKAGES: Final = ("onnxruntime-gpu", "tensorrt")

log = structlog.get_logger()


class EncoderOpener:
    """Makes openers for ``place``.

    Args:
        compiled: Where graphs that were compiled for a device are kept.
        progress: Hears, in words for people, how far compiling is.
        facts: The machine, which what is compiled fits.
    """

    def __init__(self, compiled: Path, progress: Callable[[str], None], facts: DeviceFacts) -> None:
        self._compiled = compiled
        self._progress = progress
        self._identity = gpu_identity(facts)

    def embedder(self, folder: Path) -> Callable[[ProviderChoice], TextEncoder]:
        """Returns what opens an embedder on a provider."""

        def open_on(choice: ProviderChoice) -> TextEncoder:
            match choice.provider:
                case Provider.CPU:
                    return TextEncoder.open(folder)
                case Provider.QNN:
                    _refuse_other_precisions(choice, Precision.A16W8)
                    return open_text_encoder_on_npu(folder, choice.options, self._compiled, self._ready)
                case Provider.CUDA | Provider.TENSORRT | Provider.OPENVINO:
                    return open_text_encoder_on_gpu(folder, self._gpu(choice), self._warmed)

        return open_on

    def reranker(self, folder: Path) -> Callable[[ProviderChoice], PairEncoder]:
        """Returns what opens a cross-encoder on a provider."""

        def open_on(choice: ProviderChoice) -> PairEncoder:
            match choice.provider:
                case Provider.CPU:
                    return PairEncoder.open(folder)
                case Provider.QNN:
                    _refuse_other_precisions(choice, Precision.A16W8)
                    return open_pair_encoder_on_npu(folder, choice.options, self._compiled, self._ready)
                case Provider.CUDA | Provider.TENSORRT | Provider.OPENVINO:
                    return open_pair_encoder_on_gpu(folder, self._gpu(choice), self._warmed)

        return open_on

    def _ready(self, graph: GraphReady) -> None:
        what = "compiled for the NPU" if graph.compiled else "taken from the compiled graphs"
        log.info(what, model=graph.model, tokens=graph.tokens, graph=graph.number, of=graph.of)
        self._progress(f"{graph.model}: {graph.number} of {graph.of} graphs {what}")

    def _gpu(self, choice: ProviderChoice) -> GpuPlace:
        _refuse_other_precisions(choice, Precision.MODEL, Precision.FP16, Precision.FP32)
        precision = Precision.FP32 if choice.precision is Precision.MODEL else choice.precision
        return GpuPlace(choice.provider, precision, choice.options, self._identity, self._compiled)

    def _warmed(self, told: EngineBegun | ShapeReady) -> None:
        provider = told.provider.value
        if isinstance(told, EngineBegun):
            log.info("an engine is being built", model=told.model, provider=provider)
            self._progress(f"{told.model}: an engine for {provider} is being built, which takes minutes")
            return
        what = "built and run" if told.compiled else "run"
        log.info(what, model=told.model, provider=provider, tokens=told.tokens, length=told.number, of=told.of)
        self._progress(f"{told.model}: {told.number} of {told.of} lengths {what} on {provider}")


def gpu_identity(facts: DeviceFacts) -> GpuIdentity:
    """Returns what an engine for this machine's NVIDIA GPU fits: another driver, library or GPU makes another."""
    drivers = facts.drivers
    versions = {name: version for name, version in drivers.libraries.items() if name in _GPU_LIBRARIES}
    versions |= {name: version for name, version in drivers.packages.items() if name in _GPU_PACKAGES}
    versions["driver"] = drivers.driver or facts.board.jetson_release or "unknown"
    return GpuIdentity(
        ", ".join(f"{name} {version}" for name, version in sorted(versions.items())),
        "; ".join((facts.processor.machine, *drivers.gpus, *facts.board.compatible)),
    )


def _refuse_other_precisions(choice: ProviderChoice, *precisions: Precision) -> None:
    if choice.precision not in precisions:
        raise ConfigurationError(
            f"profile: {choice.provider.value}.precision is {choice.precision.value}, encoders run there in "
            + " or ".join(precision.value for precision in precisions)
        )


_Opened = TypeVar("_Opened")


def on_cpu(open_stage: Callable[[], _Opened]) -> Callable[[ProviderChoice], _Opened]:
    """Makes an opener for ``place`` of one that needs no choice; it refuses every provider but the CPU."""

    def open_on(choice: ProviderChoice) -> _Opened:
        if choice.provider is not Provider.CPU:
            raise ProviderUnavailable(choice.provider.value, "this version runs this stage on processor cores only")
        return open_stage()

    return open_on
