"""Opens embedder and cross-encoder where the device profile puts them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from edge_rag.core.placement import Precision, Provider
from edge_rag.device.profile import ProviderChoice
from edge_rag.errors import ConfigurationError, ProviderUnavailable
from edge_rag.runtime.npu.opening import GraphReady, open_pair_encoder_on_npu, open_text_encoder_on_npu
from edge_rag.runtime.pair_encoder import PairEncoder
from edge_rag.runtime.text_encoder import TextEncoder

COMPILED_FOLDER: Final = "compiled"
"""Folder of the data directory that holds what was compiled for this device; may be removed at any time."""

log = structlog.get_logger()


class EncoderOpener:
    """Makes openers for ``place``.

    Args:
        compiled: Where graphs that were compiled for a device are kept.
        progress: Hears, in words for people, how far compiling is.
    """

    def __init__(self, compiled: Path, progress: Callable[[str], None]) -> None:
        self._compiled = compiled
        self._progress = progress

    def embedder(self, folder: Path) -> Callable[[ProviderChoice], TextEncoder]:
        """Returns what opens an embedder on a provider."""

        def open_on(choice: ProviderChoice) -> TextEncoder:
            if _on_npu(choice):
                return open_text_encoder_on_npu(folder, choice.options, self._compiled, self._ready)
            return TextEncoder.open(folder)

        return open_on

    def reranker(self, folder: Path) -> Callable[[ProviderChoice], PairEncoder]:
        """Returns what opens a cross-encoder on a provider."""

        def open_on(choice: ProviderChoice) -> PairEncoder:
            if _on_npu(choice):
                return open_pair_encoder_on_npu(folder, choice.options, self._compiled, self._ready)
            return PairEncoder.open(folder)

        return open_on

    def _ready(self, graph: GraphReady) -> None:
        what = "compiled for the NPU" if graph.compiled else "taken from the compiled graphs"
        log.info(what, model=graph.model, tokens=graph.tokens, graph=graph.number, of=graph.of)
        self._progress(f"{graph.model}: {graph.number} of {graph.of} graphs {what}")


def _on_npu(choice: ProviderChoice) -> bool:
    match choice.provider:
        case Provider.CPU:
            return False
        case Provider.QNN if choice.precision is Precision.A16W8:
            return True
        case Provider.QNN:
            raise ConfigurationError(
                f"profile: qnn.precision is {choice.precision.value}, encoders run there in {Precision.A16W8.value}"
            )
    raise ProviderUnavailable(choice.provider.value, "encoders have no form for it in this version")
