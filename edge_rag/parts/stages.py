"""How generators are opened on a provider, for the daemon and for trials alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from edge_rag.device.profile import ProviderChoice
from edge_rag.generator.ports import ModelRunner
from edge_rag.parts.cpu import on_cpu
from edge_rag.runtime.paged_decoder import PagedDecoder


def paged_opener(folder: Path, pages: int) -> Callable[[ProviderChoice], ModelRunner]:
    """Returns what opens a generator with so many KV pages on a provider."""
    return on_cpu(lambda: PagedDecoder.open(folder, pages))


def serial_opener(folder: Path, context: int) -> Callable[[ProviderChoice], ModelRunner]:
    """Returns what opens a generator that runs as it came, for sequences so long."""

    def open_serial() -> ModelRunner:
        # Imported where it is needed: it brings a second copy of ONNX Runtime into the process.
        from edge_rag.runtime.serial_decoder import SerialDecoder

        return SerialDecoder.open(folder, context)

    return on_cpu(open_serial)
