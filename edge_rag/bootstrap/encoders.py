"""Opens embedder and cross-encoder on the providers that the device profile names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import structlog

from edge_rag.bootstrap.startup_log import log_placement
from edge_rag.core.monitoring.status import ModelInUse
from edge_rag.core.placement import ModelStage, Precision, Provider
from edge_rag.device.facts import DeviceFacts
from edge_rag.device.placing import device_name, place
from edge_rag.device.profile import DeviceProfile, ProviderChoice
from edge_rag.errors import ConfigurationError
from edge_rag.model_store.store import RoleFolders
from edge_rag.pipeline.ports import Reranker
from edge_rag.reranker import cross_encoder, max_sim
from edge_rag.reranker.cross_encoder import CrossEncoderReranker
from edge_rag.reranker.max_sim import MaxSimReranker
from edge_rag.runtime.encoder.cross_encoder import PairEncoder
from edge_rag.runtime.encoder.gpu.encoders import (
    EngineBuildStarted,
    EngineIdentity,
    GpuTarget,
    ShapeReady,
    open_pair_encoder_on_gpu,
    open_text_encoder_on_gpu,
)
from edge_rag.runtime.encoder.npu.encoders import GraphReady, open_pair_encoder_on_npu, open_text_encoder_on_npu
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.session.providers import SPECS
from edge_rag.runtime.session.providers.spec import GraphForm

COMPILED_FOLDER: Final = "compiled"
"""Folder of the data directory with graphs compiled for this device; may be removed at any time."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Encoders:
    """The opened embedder and reranker.

    Attributes:
        reranker: The reranker: a cross-encoder, or MaxSim over the embedder's token vectors.
        reranker_name: Name of its scores; differs where the same pair could get another score.
        keep_memory: Sets whether encoders keep the memory of intermediate results between runs; they do at first.
        max_sim: The reranker if it compares token vectors of passages, which can be kept; None for a cross-encoder.
    """

    embedder: TextEncoder
    reranker: Reranker
    reranker_name: str
    models: tuple[ModelInUse, ...]
    embedder_device: str
    reranker_device: str
    keep_memory: Callable[[bool], None]
    max_sim: MaxSimReranker | None

    @classmethod
    def open(cls, opener: EncoderOpener, profile: DeviceProfile, folders: RoleFolders, cache_bytes: int) -> Encoders:
        """Opens the models where the profile places them.

        Args:
            folders: Folders of the models; without a cross-encoder the embedder reranks.
            cache_bytes: Most memory for token vectors of reranked passages.
        """
        stages = profile.stages
        embedder, placement = place(ModelStage.EMBEDDER, stages[ModelStage.EMBEDDER], opener.embedder(folders.embedder))
        embedder_model = ModelInUse(folders.embedder.name, f"{embedder.dimension} dimensions", placement)
        log_placement(embedder_model)
        device = device_name(placement)
        if folders.reranker is None:
            shared = replace(placement, stage=ModelStage.RERANKER)
            model = ModelInUse(embedder_model.name, "max-sim of token vectors", shared)
            log_placement(model)
            reranker = MaxSimReranker(embedder, cache_bytes=cache_bytes)
            return cls(
                embedder,
                reranker,
                f"{max_sim.METHOD} {embedder.name}",
                (embedder_model, model),
                device,
                device,
                embedder.keep_memory,
                reranker,
            )
        encoder, placement = place(ModelStage.RERANKER, stages[ModelStage.RERANKER], opener.reranker(folders.reranker))
        model = ModelInUse(folders.reranker.name, "cross-encoder", placement)
        log_placement(model)

        def keep_memory(keep: bool) -> None:
            embedder.keep_memory(keep)
            encoder.keep_memory(keep)

        return cls(
            embedder,
            CrossEncoderReranker(encoder, embedder),
            f"{cross_encoder.METHOD} {encoder.identity} {embedder.name}",
            (embedder_model, model),
            device,
            device_name(placement),
            keep_memory,
            None,
        )


class EncoderOpener:
    """Makes openers for ``place``.

    Args:
        facts: The machine, which compiled graphs must fit.
    """

    def __init__(self, compiled: Path, progress: Callable[[str], None], facts: DeviceFacts) -> None:
        self._compiled = compiled
        self._progress = progress
        self._facts = facts

    def embedder(self, folder: Path) -> Callable[[ProviderChoice], TextEncoder]:
        """Returns a function that opens an embedder on a provider."""

        def open_on(choice: ProviderChoice) -> TextEncoder:
            match _form(choice):
                case GraphForm.PACKED:
                    return TextEncoder.open(folder)
                case GraphForm.FIXED:
                    return open_text_encoder_on_npu(folder, choice.options, self._compiled, self._graph_ready)
                case GraphForm.PADDED:
                    return open_text_encoder_on_gpu(folder, self._gpu(choice), self._shape_ready)

        return open_on

    def reranker(self, folder: Path) -> Callable[[ProviderChoice], PairEncoder]:
        """Returns a function that opens a cross-encoder on a provider."""

        def open_on(choice: ProviderChoice) -> PairEncoder:
            match _form(choice):
                case GraphForm.PACKED:
                    return PairEncoder.open(folder)
                case GraphForm.FIXED:
                    return open_pair_encoder_on_npu(folder, choice.options, self._compiled, self._graph_ready)
                case GraphForm.PADDED:
                    return open_pair_encoder_on_gpu(folder, self._gpu(choice), self._shape_ready)

        return open_on

    def _gpu(self, choice: ProviderChoice) -> GpuTarget:
        precision = Precision.FP32 if choice.precision is Precision.MODEL else choice.precision
        identity = engine_identity(choice.provider, self._facts)
        return GpuTarget(choice.provider, precision, choice.options, identity, self._compiled)

    def _graph_ready(self, graph: GraphReady) -> None:
        what = "compiled for the NPU" if graph.compiled else "taken from the compiled graphs"
        log.info(what, model=graph.model, tokens=graph.tokens, graph=graph.number, of=graph.total)
        self._progress(f"{graph.model}: {graph.number} of {graph.total} graphs {what}")

    def _shape_ready(self, event: EngineBuildStarted | ShapeReady) -> None:
        provider = event.provider.value
        if isinstance(event, EngineBuildStarted):
            log.info("an engine is being built", model=event.model, provider=provider)
            self._progress(f"{event.model}: an engine for {provider} is being built, which takes minutes")
            return
        what = "built and run" if event.compiled else "run"
        log.info(what, model=event.model, provider=provider, tokens=event.tokens, length=event.number, of=event.total)
        self._progress(f"{event.model}: {event.number} of {event.total} lengths {what} on {provider}")


def engine_identity(provider: Provider, facts: DeviceFacts) -> EngineIdentity:
    """Returns what an engine fits that a provider built into ONNX Runtime compiles on this machine."""
    cache, drivers = SPECS[provider].cache, facts.drivers
    libraries, distributions = ((), ()) if cache is None else (cache.libraries, cache.distributions)
    versions = {name: version for name, version in drivers.libraries.items() if name in libraries}
    versions |= {name: version for name, version in drivers.packages.items() if name in distributions}
    versions["driver"] = drivers.driver or facts.board.jetson_release or "unknown"
    return EngineIdentity(
        ", ".join(f"{name} {version}" for name, version in sorted(versions.items())),
        "; ".join((facts.processor.machine, *drivers.gpus, *facts.board.compatible)),
    )


def _form(choice: ProviderChoice) -> GraphForm:
    spec = SPECS[choice.provider]
    if choice.precision not in spec.encoder_precisions:
        raise ConfigurationError(
            f"profile: {choice.provider.value}.precision is {choice.precision.value}, encoders run there in "
            + " or ".join(precision.value for precision in spec.encoder_precisions)
        )
    return spec.form
