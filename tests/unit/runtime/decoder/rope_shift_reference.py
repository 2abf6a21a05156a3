"""Tokens at other positions, in NumPy: what the library is compared with."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from edge_rag.runtime.decoder.rope_shift import PageViews, Slots, Table

_KEY_BIAS: Final = 128
_LARGEST: Final = 127


def move(layer: PageViews, page_tokens: int, sources: Slots, targets: Slots, cosine: Table, sine: Table) -> None:
    source, target = np.divmod(sources, page_tokens), np.divmod(targets, page_tokens)
    layer.values[target[0], :, target[1] // 4, :, target[1] % 4] = layer.values[
        source[0], :, source[1] // 4, :, source[1] % 4
    ]
    layer.value_scales[target[0], :, target[1]] = layer.value_scales[source[0], :, source[1]]
    keys, scales = layer.keys[source[0], :, :, source[1]], layer.key_scales[source[0], :, source[1]]
    keys, scales = turned(keys, scales, cosine, sine)
    layer.keys[target[0], :, :, target[1]] = keys
    layer.key_scales[target[0], :, target[1]] = scales


def turned(
    keys: NDArray[np.uint8], scales: Table, cosine: Table, sine: Table
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Turns keys, uint8 [n, heads, head size / 4, 4], by angles, float32 [pairs]."""
    pairs = len(cosine)
    before = (keys.reshape(*keys.shape[:2], -1).astype(np.float32) - _KEY_BIAS) * scales[..., None]
    after = before.copy()
    first, second = before[..., :pairs], before[..., pairs : 2 * pairs]
    after[..., :pairs] = first * cosine - second * sine
    after[..., pairs : 2 * pairs] = second * cosine + first * sine
    magnitude: Table = np.abs(after).max(axis=-1)
    inverse = np.divide(_LARGEST, magnitude, out=np.zeros_like(magnitude), where=magnitude > 0)
    rounded = np.rint(after * inverse[..., None]) + _KEY_BIAS
    return rounded.astype(np.uint8).reshape(keys.shape), (magnitude / _LARGEST).astype(np.float32)
