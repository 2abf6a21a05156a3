"""The engine without a model: for requests that end before a model would run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edge_rag.errors import InferenceFailed
from edge_rag.runtime.decoder.model_input import PackedStep


class NoModel:
    """A ``ModelRunner`` that has one page, one token and no model. Its methods do nothing, and ``run`` always fails."""

    vocabulary_size = 1
    page_tokens = 1
    pages = 1
    max_context = 1
    end_tokens = frozenset({0})

    def run(self, step: PackedStep) -> NDArray[np.float32]:
        """Raises InferenceFailed: nothing may be generated."""
        raise InferenceFailed("there is no language model")

    def copy_page(self, source: int, target: int) -> None:
        """Does nothing."""

    def release_pages(self, pages: Sequence[int]) -> None:
        """Does nothing."""

    def move_tokens(self, sources: NDArray[np.int64], targets: NDArray[np.int64], distance: int) -> None:
        """Does nothing."""
