"""How each stage is opened on a provider: one function a stage, for the daemon and for trials alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from edge_rag.device.profile import ProviderChoice
from edge_rag.generator.ports import ModelRunner
from edge_rag.parts.cpu import on_cpu
from edge_rag.runtime.paged_decoder import PagedDecoder
from edge_rag.runtime.pair_encoder import PairEncoder
from edge_rag.runtime.text_encoder import TextEncoder


def embedder_opener(folder: Path) -> Callable[[ProviderChoice], TextEncoder]:
    """Returns what opens an embedder on a provider, and raises ProviderUnavailable where that cannot be had."""
    return on_cpu(lambda: TextEncoder.open(folder))


def reranker_opener(folder: Path) -> Callable[[ProviderChoice], PairEncoder]:
    """Returns what opens a cross-encoder on a provider; see ``embedder_opener``."""
    return on_cpu(lambda: PairEncoder.open(folder))


def paged_opener(folder: Path, pages: int) -> Callable[[ProviderChoice], ModelRunner]:
    """Returns what opens a generator with so many KV pages on a provider; see ``embedder_opener``."""
    return on_cpu(lambda: PagedDecoder.open(folder, pages))


def serial_opener(folder: Path, context: int) -> Callable[[ProviderChoice], ModelRunner]:
    """Returns what opens a generator that runs as it came, for sequences so long; see ``embedder_opener``."""

    def open_serial() -> ModelRunner:
        # Imported where it is needed: it brings a second copy of ONNX Runtime into the process.
        from edge_rag.runtime.serial_decoder import SerialDecoder

        return SerialDecoder.open(folder, context)

    return on_cpu(open_serial)
