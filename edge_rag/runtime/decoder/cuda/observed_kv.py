"""The largest keys and values of texts, seen in the pages of the paged form on processor cores."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.decoder.rope_shift import PageViews
from edge_rag.runtime.lowering.forced_run import forced_logits
from edge_rag.runtime.lowering.geometry import PagedGeometry

Largest = NDArray[np.float32]

_HALF_A_STEP = np.float32(0.5)
_KEY_BIAS = np.float32(128)


class ObservedKv:
    """Largest magnitudes by layer, head and channel, of all texts that were shown.

    Keys are seen as they are kept, rotated. Pages hold them in INT8 with a scale a token and head: what is taken for an
    element is the most that it can have been before it was rounded.

    Attributes:
        keys: float32 [layers, kv_heads, head_size].
        values: The same.
        tokens: Tokens that were seen.
    """

    def __init__(self, decoder: PagedDecoder) -> None:
        self._decoder = decoder
        self._geometry: PagedGeometry = decoder.geometry
        shape = (self._geometry.layers, self._geometry.kv_heads, self._geometry.head_size)
        self.keys: Largest = np.zeros(shape, np.float32)
        self.values: Largest = np.zeros(shape, np.float32)
        self.tokens = 0

    def show(self, token_ids: NDArray[np.int64]) -> None:
        """Runs a text on the decoder's first pages and takes in what they hold then.

        Args:
            token_ids: int64 [n], as many as the decoder's pages and the model's context hold at most.

        Raises:
            InferenceFailed: The model could not be run.
        """
        forced_logits(self._decoder, token_ids, token_ids.size)
        geometry = self._geometry
        count = -(-token_ids.size // geometry.page_tokens)
        pages = np.stack([np.frombuffer(self._decoder.read_page(page), np.int8) for page in range(count)])
        for layer, held in enumerate(np.split(pages, geometry.layers, axis=1)):
            views = PageViews(geometry, np.ascontiguousarray(held))
            # Axes: page, head, then the layout's own; in front of what is the largest over pages and tokens.
            keys: Largest = np.abs(views.keys.astype(np.float32) - _KEY_BIAS) + _HALF_A_STEP
            keys *= views.key_scales[:, :, None, :, None]
            values: Largest = np.abs(views.values.astype(np.float32)) + _HALF_A_STEP
            values *= views.value_scales.reshape(*views.value_scales.shape[:2], -1, 1, 4)
            self._take(self.keys[layer], keys.transpose(0, 3, 1, 2, 4), token_ids.size)
            self._take(self.values[layer], values.transpose(0, 2, 4, 1, 3), token_ids.size)
        self.tokens += token_ids.size

    def _take(self, largest: Largest, seen: Largest, tokens: int) -> None:
        """Takes elements in, the axes of the tokens in front and those of heads and channels behind."""
        by_token = seen.reshape(-1, *largest.shape)[:tokens]
        np.maximum(largest, by_token.max(axis=0), out=largest)
