"""A decoder in front of another one, for what is to be measured, changed or held up on the way."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edge_rag.engine.ports import ModelRunner
from edge_rag.runtime.decoder.model_input import PackedStep


class PassingDecoder:
    """Implements ``ModelRunner`` by passing everything on."""

    def __init__(self, decoder: ModelRunner) -> None:
        self._decoder = decoder
        self.vocabulary_size = decoder.vocabulary_size
        self.page_tokens = decoder.page_tokens
        self.pages = decoder.pages
        self.max_context = decoder.max_context
        self.end_tokens = decoder.end_tokens

    def run(self, step: PackedStep) -> NDArray[np.float32]:
        return self._decoder.run(step)

    def release_pages(self, pages: Sequence[int]) -> None:
        self._decoder.release_pages(pages)

    def move_tokens(self, sources: NDArray[np.int64], targets: NDArray[np.int64], distance: int) -> None:
        self._decoder.move_tokens(sources, targets, distance)
