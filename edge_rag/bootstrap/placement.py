"""How generators are opened on a provider, for the daemon and for trials alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from edge_rag.bootstrap.cpu import on_cpu
from edge_rag.core.placement import Precision, Provider
from edge_rag.device.profile import ProviderChoice
from edge_rag.engine.ports import ModelRunner
from edge_rag.errors import ConfigurationError, ProviderUnavailable
from edge_rag.runtime.decoder.cuda.decoder import CudaDecoder
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder


def paged_opener(folder: Path, pages: int) -> Callable[[ProviderChoice], ModelRunner]:
    """Returns what opens a generator with so many KV pages on a provider."""

    def open_on(choice: ProviderChoice) -> ModelRunner:
        match choice.provider:
            case Provider.CPU:
                return PagedDecoder.open(folder, pages)
            case Provider.CUDA if choice.precision is Precision.FP16:
                return CudaDecoder.open(folder, pages, choice.options)
            case Provider.CUDA:
                raise ConfigurationError(
                    f"profile: generator.cuda.precision is {choice.precision.value}, generators run there in "
                    f"{Precision.FP16.value}"
                )
        raise ProviderUnavailable(choice.provider.value, "generators have no form for it in this version")

    return open_on


def serial_opener(folder: Path, context: int) -> Callable[[ProviderChoice], ModelRunner]:
    """Returns what opens a generator that runs as it came, for sequences so long."""

    def open_serial() -> ModelRunner:
        # Imported where it is needed: it brings a second copy of ONNX Runtime into the process.
        from edge_rag.runtime.decoder.serial_decoder import SerialDecoder

        return SerialDecoder.open(folder, context)

    return on_cpu(open_serial)
