"""Ways to keep keys and values in few bits, in NumPy: what each would cost before a kernel is written for it.

Every form has the bytes that it takes, scales included, and gives back what its bits stand for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edge_rag.runtime.lowering.decoder_graph import DecoderDescription
from edge_rag.runtime.lowering.reference_decoder import ReferenceDecoder, ReferenceWeights

Floats = NDArray[np.float32]
Matrices = NDArray[np.float64]

PAGE: Final = 32
"""Tokens of a page."""

_HEADS: Final = 20_000
_ROUNDS: Final = 150
_HALF_BYTES: Final = 2
_FLOAT_BYTES: Final = 4


@cache
def fitted_levels(count: int = 16, size: int = 64) -> NDArray[np.float64]:
    """Returns levels of least square error for normally distributed heads in units of their largest magnitude.

    Lloyd's algorithm (Lloyd, Least squares quantization in PCM, 1982) on random heads; symmetric about 0.

    Args:
        count: Levels.
        size: Elements with one scale.
    """
    heads = np.random.default_rng(0).normal(size=(_HEADS, size))
    values = np.sort((heads / np.abs(heads).max(axis=1, keepdims=True)).ravel())
    sums = np.concatenate([[0.0], np.cumsum(values)])
    levels = np.linspace(-1.0, 1.0, count)
    for _ in range(_ROUNDS):
        inner = np.searchsorted(values, (levels[1:] + levels[:-1]) / 2)
        bounds = np.concatenate([[0], inner, [values.size]])
        levels = np.diff(sums[bounds]) / np.diff(bounds)
    return (levels - levels[::-1]) / 2


@dataclass(frozen=True, slots=True)
class Form:
    """A way to keep the keys or the values of a head.

    Attributes:
        bytes: Of a token's head.
        kept: What is left of heads, [kv heads, tokens, head size], of a layer.
    """

    bytes: float
    kept: Callable[[int, Floats], Floats]


def in_floats(size: int) -> Form:
    """As they are."""
    return Form(size * _FLOAT_BYTES, lambda _, heads: heads)


def in_equal_steps(size: int) -> Form:
    """In 8 bits, with a scale for each head."""
    return Form(size + _FLOAT_BYTES, lambda _, heads: _in_steps(heads))


def spread(size: int, bits: int, groups: int = 1) -> Form:
    """After a Hadamard transform: 8 bits in equal steps, fewer in fitted levels, with a scale for each group."""
    hadamard = _hadamard(size)

    def kept(_: int, heads: Floats) -> Floats:
        parts = (heads @ hadamard).reshape(*heads.shape[:-1], groups, size // groups)
        found: Floats = _rounded(parts, bits).reshape(heads.shape) @ hadamard.T
        return found

    return Form(size * bits / 8 + groups * _scale_bytes(bits), kept)


def without_mean(means: Matrices, form: Form) -> Form:
    """What is left after a vector of each layer's head is subtracted, which no softmax notices. ``means``: [layers, kv
    heads, head size]."""

    def kept(layer: int, heads: Floats) -> Floats:
        mean = means[layer][:, None].astype(np.float32)
        found: Floats = form.kept(layer, heads - mean) + mean
        return found

    return Form(form.bytes, kept)


def without_page_mean(size: int, form: Form) -> Form:
    """What is left after the mean of a page is subtracted, which is kept as halves."""

    def kept(layer: int, heads: Floats) -> Floats:
        tokens = heads.shape[1]
        paged = np.pad(heads, ((0, 0), (0, -tokens % PAGE), (0, 0)), "edge")
        mean = paged.reshape(len(heads), -1, PAGE, size).mean(axis=2).repeat(PAGE, axis=1)[:, :tokens]
        found: Floats = form.kept(layer, heads - mean) + mean
        return found

    return Form(form.bytes + size * _HALF_BYTES / PAGE, kept)


def by_channel(size: int) -> Form:
    """In 4 bits and equal steps: a step and a minimum, halves, for each channel of a page (Liu et al., KIVI, 2024)."""

    def kept(_: int, heads: Floats) -> Floats:
        tokens = heads.shape[1]
        paged = np.pad(heads, ((0, 0), (0, -tokens % PAGE), (0, 0)), "edge").reshape(len(heads), -1, PAGE, size)
        low = paged.min(axis=2, keepdims=True)
        step = np.maximum((paged.max(axis=2, keepdims=True) - low) / 15, np.float32(1e-20))
        found: Floats = (np.rint((paged - low) / step) * step + low).reshape(len(heads), -1, size)[:, :tokens]
        return found

    return Form(size / 2 + 2 * size * _HALF_BYTES / PAGE, kept)


def first_tokens(count: int, wide: Form, form: Form) -> Form:
    """Another form for the first tokens of a text."""

    def kept(layer: int, heads: Floats) -> Floats:
        found = form.kept(layer, heads)
        found[:, :count] = wide.kept(layer, heads)[:, :count]
        return found

    return Form(form.bytes, kept)


def of_layers(chosen: Sequence[int], layers: int, form: Form, other: Form) -> Form:
    """A form for the chosen layers and another one for the rest."""
    share = len(chosen) / layers
    return Form(
        share * form.bytes + (1 - share) * other.bytes,
        lambda layer, heads: (form if layer in chosen else other).kept(layer, heads),
    )


def transformed(moments: Matrices, metrics: Matrices, classes: Sequence[tuple[int, int]]) -> Form:
    """After the transform of each layer's head that makes the error least where it counts, in classes of dimensions.

    In the coordinates U'S x, with S the root of the metric and U the principal axes of S C S, dimensions are
    uncorrelated and every error counts alike (transform coding: Goyal, Theoretical foundations of transform coding,
    2001). Those of the largest moments get the most bits; within a class they are made more alike, and spread.

    Args:
        moments: C, second moments of what is kept, [layers, kv heads, size, size].
        metrics: What a squared error counts, alike.
        classes: Dimensions, a power of two, and bits, by falling moments.
    """
    inverses, transforms = _transforms(moments, metrics, classes)

    def kept(layer: int, heads: Floats) -> Floats:
        coded = heads @ transforms[layer]
        bounds = np.cumsum([count for count, _ in classes])[:-1]
        parts = np.split(coded, bounds, axis=-1)
        rounded = [_rounded(part, bits) for part, (_, bits) in zip(parts, classes, strict=True)]
        found: Floats = np.concatenate(rounded, axis=-1) @ inverses[layer]
        return found

    return Form(sum(count * bits / 8 + _scale_bytes(bits) for count, bits in classes), kept)


class Moments(ReferenceDecoder):
    """Sums the second moments of keys, values and queries, and the keys, over texts.

    Args:
        description: The architecture.
        weights: The weights.
    """

    def __init__(self, description: DecoderDescription, weights: ReferenceWeights) -> None:
        super().__init__(description, weights)
        layers, heads, size = len(description.layers), description.kv_heads, description.head_size
        self.keys, self.queries, self.values = (np.zeros((layers, heads, size, size)) for _ in range(3))
        self._key_sums = np.zeros((layers, heads, size))
        self._tokens = np.zeros(layers)
        rows = (weights.rows(f"{layer}.attention_output") for layer in range(layers))
        self.outputs = np.stack([_by_head(row.T @ row, heads, size) for row in rows])
        """What an error of a head's values counts: the moments of its columns of the output projection."""

    @property
    def key_means(self) -> Matrices:
        """Mean keys, [layers, kv heads, head size]."""
        means: Matrices = self._key_sums / self._tokens[:, None, None]
        return means

    def attention(self, number: int, queries: Floats, keys: Floats, values: Floats) -> Floats:
        """Attends, and adds the heads to the moments."""
        self.keys[number] += keys.swapaxes(1, 2) @ keys
        self.values[number] += values.swapaxes(1, 2) @ values
        self._key_sums[number] += keys.sum(axis=1)
        self._tokens[number] += keys.shape[1]
        of_heads = queries.reshape(len(keys), -1, keys.shape[2])
        self.queries[number] += of_heads.swapaxes(1, 2) @ of_heads
        return super().attention(number, queries, keys, values)


class RoundedDecoder(ReferenceDecoder):
    """A decoder in float32 that keeps keys and values in a form.

    Args:
        description: The architecture.
        weights: The weights.
        keys: The form of the keys.
        values: That of the values.
    """

    def __init__(self, description: DecoderDescription, weights: ReferenceWeights, keys: Form, values: Form) -> None:
        super().__init__(description, weights)
        self._keys, self._values = keys, values

    def attention(self, number: int, queries: Floats, keys: Floats, values: Floats) -> Floats:
        """Attends to what is left of keys and values."""
        return super().attention(number, queries, self._keys.kept(number, keys), self._values.kept(number, values))


def compared(size: int, layers: int, moments: Moments) -> list[tuple[str, Form, Form]]:
    """Returns the forms that are compared, each with its name and those of keys and values."""
    exact, int8, int4 = in_floats(size), in_equal_steps(size), spread(size, 4)
    half, quarter = size // 2, size // 4
    ends = (0, 1, layers - 2, layers - 1)

    def fitted_keys(*classes: tuple[int, int]) -> Form:
        return transformed(moments.keys, moments.queries, classes)

    uneven = fitted_keys((half, 5), (half, 3))
    uneven_values = transformed(moments.values, moments.outputs, ((half, 5), (half, 3)))
    return [
        ("INT8", int8, int8),
        ("INT8 after a Hadamard transform", spread(size, 8), spread(size, 8)),
        ("INT4, as built", int4, int4),
        ("INT4 values, float32 keys", exact, int4),
        ("INT4 keys, float32 values", int4, exact),
        ("groups of half a head", spread(size, 4, 2), exact),
        ("first four tokens INT8", first_tokens(4, spread(size, 8), int4), exact),
        ("first and last two layers INT8", of_layers(ends, layers, spread(size, 8), int4), exact),
        ("5 bits", spread(size, 5), exact),
        (f"each channel of {PAGE} tokens, no transform", by_channel(size), exact),
        ("less a fitted mean", without_mean(moments.key_means, int4), exact),
        (f"less the mean of {PAGE} tokens", without_page_mean(size, int4), exact),
        ("fitted transform, 4 bits", fitted_keys((size, 4)), exact),
        ("fitted transform, halves of 5 and 3 bits", uneven, exact),
        ("fitted transform, 6, 4, 2 bits", fitted_keys((quarter, 6), (half, 4), (quarter, 2)), exact),
        ("INT8 keys, INT4 values", spread(size, 8), int4),
        ("fitted keys of 5 and 3 bits, INT4 values", uneven, int4),
        ("keys and values fitted, of 5 and 3 bits", uneven, uneven_values),
    ]


def _rounded(heads: Floats, bits: int) -> Floats:
    """Rounds heads to equal steps in 8 bits, and to fitted levels in fewer, whose scales are fitted twice."""
    if bits == 8:
        return _in_steps(heads)
    levels = fitted_levels(1 << bits, heads.shape[-1]).astype(np.float32)
    middles = (levels[1:] + levels[:-1]) / 2
    scale = np.maximum(np.abs(heads).max(axis=-1, keepdims=True), np.float32(1e-20))
    for _ in range(2):
        nearest = levels[np.searchsorted(middles, heads / scale)]
        scale = (heads * nearest).sum(axis=-1, keepdims=True) / np.square(nearest).sum(axis=-1, keepdims=True)
        scale = np.maximum(scale, np.float32(1e-20))
    rounded: Floats = nearest * scale.astype(np.float16).astype(np.float32)
    return rounded


def _in_steps(heads: Floats) -> Floats:
    scale = np.maximum(np.abs(heads).max(axis=-1, keepdims=True) / 127, np.float32(1e-20))
    rounded: Floats = np.rint(heads / scale) * scale
    return rounded


def _scale_bytes(bits: int) -> int:
    return _FLOAT_BYTES if bits == 8 else _HALF_BYTES


def _hadamard(size: int) -> Floats:
    """Returns the orthonormal transform of each block of a head, of the largest power of two that divides its size."""
    block = np.ones((1, 1))
    while size % (2 * len(block)) == 0:
        block = np.block([[block, block], [block, -block]])
    return np.kron(np.eye(size // len(block)), block / math.sqrt(len(block))).astype(np.float32)


def _transforms(moments: Matrices, metrics: Matrices, classes: Sequence[tuple[int, int]]) -> tuple[Floats, Floats]:
    """Returns what takes classes back to heads, and heads to classes, by layer and kv head."""
    root, inverse_root = _power(metrics, 0.5), _power(metrics, -0.5)
    found, axes = np.linalg.eigh(root @ moments @ root)
    found, axes = found[..., ::-1], axes[..., ::-1]
    evened = np.maximum(found, found[..., :1] * 1e-9)[..., None, :] ** -0.25
    size = sum(count for count, _ in classes)
    mixed, first = np.zeros((size, size)), 0
    for count, _ in classes:
        mixed[first : first + count, first : first + count] = _hadamard(count)
        first += count
    transforms = (root @ axes * evened) @ mixed
    inverses = mixed.T @ ((axes / evened).swapaxes(-1, -2) @ inverse_root)
    return inverses.astype(np.float32), transforms.astype(np.float32)


def _power(matrices: Matrices, exponent: float) -> Matrices:
    """Raises symmetric matrices to a power; the smallest eigenvalues count as a millionth of the largest."""
    values, axes = np.linalg.eigh(matrices)
    raised = np.maximum(values, values[..., -1:] * 1e-6) ** exponent
    power: Matrices = (axes * raised[..., None, :]) @ axes.swapaxes(-1, -2)
    return power


def _by_head(moments: Floats, heads: int, size: int) -> Matrices:
    """Sums the blocks on the diagonal that belong to the query heads of each kv head."""
    group = len(moments) // (heads * size)
    blocks = np.stack([moments[i : i + size, i : i + size] for i in range(0, len(moments), size)])
    summed: Matrices = blocks.reshape(heads, group, size, size).sum(axis=1).astype(np.float64)
    return summed
