"""The graph before it is lowered, over pages of float32: what INT8 keys and values are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_rag.errors import InferenceFailed
from edge_rag.runtime.decoder.model_input import PackedStep
from edge_rag.runtime.decoder.paged_decoder import PagedModel
from edge_rag.runtime.lowering.geometry import read_geometry
from edge_rag.runtime.session.sessions import open_session


class FloatCacheDecoder(PagedModel):
    """A model as its converter left it, one sequence a run in plain ONNX Runtime; a ``ModelRunner`` for the engine.

    Args:
        folder: Holds the converted model and its lowered form's description.
        pages: Number of pages.
    """

    def __init__(self, folder: Path, pages: int) -> None:
        super().__init__(read_geometry(folder), pages)
        self._session = open_session(folder / "model.onnx")
        shape = (self.geometry.kv_heads, pages * self.page_tokens, self.geometry.head_size)
        names = [value.name for value in self._session.get_inputs() if value.name.startswith("past_key_values")]
        self._cache = {name: np.zeros(shape, np.float32) for name in names}
        self._outputs = ["logits", *(name.replace("past_key_values", "present") for name in names)]

    def run(self, step: PackedStep) -> NDArray[np.float32]:
        """Runs a step, one sequence after the other.

        Returns:
            float32 [R, vocabulary], in the order of ``step.logits_indices``.

        Raises:
            InferenceFailed: The step is refused, or ONNX Runtime failed.
        """
        self.check_step(step)
        bounds = list(pairwise(step.cumulative_sequence_lengths.tolist()))
        rows = [
            self._run_sequence(step, begin, end, step.block_table[sequence])
            for sequence, (begin, end) in enumerate(bounds)
            if begin < end
        ]
        logits: NDArray[np.float32] = np.concatenate(rows)[step.logits_indices]
        return logits

    def copy_page(self, source: int, target: int) -> None:
        """Copies a page's keys and values, in every layer, over those of another."""
        size = self.page_tokens
        for cache in self._cache.values():
            cache[:, target * size : (target + 1) * size] = cache[:, source * size : (source + 1) * size]

    def release_pages(self, pages: Sequence[int]) -> None:
        """Does nothing: this cache is for measuring."""

    def move_tokens(self, sources: NDArray[np.int64], targets: NDArray[np.int64], distance: int) -> None:
        """Refuses: here every text is computed where it stands.

        Raises:
            InferenceFailed: Always.
        """
        raise InferenceFailed("tokens are not moved here")

    def _run_sequence(self, step: PackedStep, begin: int, end: int, table: NDArray[np.int32]) -> NDArray[np.float32]:
        positions = step.positions[begin:end]
        before = np.arange(positions[0])
        if not np.array_equal(positions, np.arange(before.size, before.size + end - begin)):
            raise InferenceFailed("the positions of a sequence do not follow each other")
        slots = table[before // self.page_tokens] * self.page_tokens + before % self.page_tokens
        feeds: dict[str, NDArray[Any]] = {name: cache[None, :, slots] for name, cache in self._cache.items()}
        feeds["input_ids"] = step.input_ids[None, begin:end]
        feeds["attention_mask"] = np.ones((1, before.size + end - begin), np.int64)
        try:
            logits, *present = self._session.run(self._outputs, feeds)
        except Exception as error:
            raise InferenceFailed(f"the model run failed: {error}") from error
        for cache, new in zip(self._cache.values(), present, strict=True):
            cache[:, step.slot_mapping[begin:end]] = new[0, :, before.size :]
        rows: NDArray[np.float32] = logits[0]
        return rows
