"""Quantizes matrices by block: fitted scales and minima of 4 bits, error compensation, and plain rounding to 8 bits.

A block is 32 consecutive inputs of an output. Its scale and minimum are bytes that count a factor of the output (double
quantization: Dettmers et al., QLoRA, 2023), so that 4 bits take 4.5 bits a weight and two factors an output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from edge_rag.runtime.lowering.weight_packing import BlockFormat, QuantizedMatrix

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

BLOCK: Final = 32
"""Inputs that share a scale."""

COMPENSATED_INPUTS: Final = 1024
"""Inputs among which rounding errors are compensated; bounds the time and memory of factorizing their moments."""

_TOP: Final = 15
_REFITS: Final = 4
"""Rounds of least squares from each start."""

_CODES: Final = 255
_SPANS: Final = (15.0, 14.0, 13.0, 12.0, 11.0, 10.0, 9.0, 15.5, 16.2, 14.5)
"""Steps that a block's range may have. Whole ones find the grid of weights that were rounded to 4 bits before, whose
blocks seldom use all 16 values; those above 15 leave out the extremes."""

_ELEMENTS_AT_ONCE: Final = 1 << 20
"""Weights that are fitted at a time; about 20 float32 arrays of this size are in memory."""

FITTING_BYTES: Final = 32 * 4 * _ELEMENTS_AT_ONCE
"""Largest memory for fitting, beside the weights and the results, bytes."""

_EXACT: Final = 3e-4
"""Squared error of an output's products, as a share of their squares, up to which it lies on a grid of 16 values."""

_SHRINKAGE: Final = 0.4
"""Share of the products of different inputs that is left out, as the texts are too few to determine all of them. On
texts that were not fitted to, 0.3 to 0.5 were best for the head of a model of 576 inputs, and 0 was a tenth worse."""

_DAMPING: Final = 0.003
"""Added to the moments' diagonal, as a share of its mean."""


@dataclass(frozen=True, slots=True)
class FittedRows:
    """Outputs quantized to 4 bits: ``values * scales * scale_factors - minima * minimum_factors``, by block.

    Attributes:
        values: uint8 [outputs, inputs], below 16.
        scales: uint8 [outputs, blocks].
        minima: uint8 [outputs, blocks].
        scale_factors: float32 [outputs], each a bfloat16 number.
        minimum_factors: The same of minima, not negative.
    """

    values: Bytes
    scales: Bytes
    minima: Bytes
    scale_factors: Floats
    minimum_factors: Floats

    @property
    def weights(self) -> Floats:
        """The weights, float32 [outputs, inputs]."""
        inputs = self.values.shape[1]
        scales = np.repeat(self.scales.astype(np.float32) * self.scale_factors[:, None], BLOCK, axis=1)[:, :inputs]
        minima = np.repeat(self.minima.astype(np.float32) * self.minimum_factors[:, None], BLOCK, axis=1)[:, :inputs]
        weights: Floats = self.values.astype(np.float32) * scales - minima
        return weights

    def part(self, outputs: slice | NDArray[Any]) -> FittedRows:
        return FittedRows(*(getattr(self, name)[outputs] for name in FittedRows.__slots__))

    @property
    def matrix(self) -> QuantizedMatrix:
        """The weights as a matrix [inputs, outputs]."""
        outputs, inputs = self.values.shape
        return QuantizedMatrix(
            BlockFormat(inputs, outputs, 4, BLOCK),
            np.ascontiguousarray(self.values.T),
            np.ascontiguousarray(self.scales.T),
            minima=np.ascontiguousarray(self.minima.T),
            scale_factors=np.ascontiguousarray(self.scale_factors[None]),
            minimum_factors=np.ascontiguousarray(-self.minimum_factors[None]),
        )


def fit_rows(weights: Floats, moments: Floats | None = None) -> tuple[FittedRows, NDArray[np.float64]]:
    """Quantizes outputs to 4 bits so that their products change least.

    Of every output the better one is kept of two: each block fitted by itself, and blocks that make up for the errors
    of those before them (Frantar et al., GPTQ, 2023), whose scales are fitted as they are reached. The first is
    exact for weights that lie on a grid of 16 values a block.

    Args:
        weights: float32 [outputs, inputs], finite.
        moments: float32 [inputs, inputs], the mean products of pairs of inputs; those within
            ``COMPENSATED_INPUTS`` of each other are used. None: inputs are alike and independent.

    Returns:
        The rounded outputs; and the mean squared error of each output's products, float64 [outputs].
    """
    outputs, inputs = weights.shape
    chances = np.ones(inputs, np.float32) if moments is None else np.maximum(np.diagonal(moments), 1e-12)
    found: list[FittedRows] = []
    errors: list[NDArray[np.float64]] = []
    groups = [] if moments is None else _groups(moments)
    at_once = max(1, _ELEMENTS_AT_ONCE // inputs)
    for first in range(0, outputs, at_once):
        part = weights[first : first + at_once]
        plain = _fitted(part, chances)
        error = _error(part - plain.weights, chances, groups)
        inexact = error > _EXACT * _error(part, chances, groups)
        if groups and inexact.any():
            compensated = _compensated(part[inexact], plain.part(inexact), chances, groups)
            other = _error(part[inexact] - compensated.weights, chances, groups)
            better = other < error[inexact]
            chosen = np.flatnonzero(inexact)[better]
            plain = _replaced(plain, chosen, compensated.part(better))
            error[chosen] = other[better]
        found.append(plain)
        errors.append(error)
    return joined(found), np.concatenate(errors)


def joined(parts: Sequence[FittedRows]) -> FittedRows:
    if len(parts) == 1:
        return parts[0]
    return FittedRows(*(np.concatenate([getattr(part, name) for part in parts]) for name in FittedRows.__slots__))


def round_rows(weights: Floats) -> QuantizedMatrix:
    """Quantizes outputs to 8 bits, symmetrically.

    Args:
        weights: float32 [outputs, inputs], finite.

    Returns:
        The matrix [inputs, outputs].
    """
    outputs, inputs = weights.shape
    blocks = _by_block(weights, 0)
    steps: Floats = np.abs(blocks).max(axis=2) / np.float32(127)
    factors = _factors(steps)
    codes = np.ceil(steps / _divider(factors)[:, None] - np.float32(1e-3)).clip(0, _CODES).astype(np.uint8)
    divider = _divider(codes * factors[:, None])[:, :, None]
    values = (np.rint(blocks / divider).clip(-127, 127) + 128).astype(np.uint8).reshape(outputs, -1)[:, :inputs]
    return QuantizedMatrix(
        BlockFormat(inputs, outputs, 8, BLOCK),
        np.ascontiguousarray(values.T),
        np.ascontiguousarray(codes.T),
        scale_factors=np.ascontiguousarray(factors[None]),
    )


def _by_block(weights: Floats, fill: float | None = None) -> Floats:
    """Returns float32 [outputs, blocks, BLOCK]; a last block is filled with a value, None: with the output's last."""
    missing = -weights.shape[1] % BLOCK
    if missing:
        last = weights[:, -1:] if fill is None else np.full((len(weights), 1), fill, np.float32)
        weights = np.concatenate([weights, np.repeat(last, missing, axis=1)], axis=1)
    return weights.reshape(len(weights), -1, BLOCK)


def _shares(chances: Floats) -> Floats:
    """Returns how much each input of a block counts, float32 [1, blocks, BLOCK]; filled ones do not."""
    shares = _by_block(chances[None].astype(np.float32), 0)
    shares = np.maximum(shares, 0)
    totals: Floats = shares.sum(axis=2, keepdims=True)
    return shares / _divider(totals)


def _divider(values: Floats) -> Floats:
    divider: Floats = np.where(values > 0, values, np.float32(1))
    return divider


def _factors(largest: Floats) -> Floats:
    """Returns the factor of each output, the least bfloat16 number with which no value is above the largest code."""
    bits = (largest.max(axis=1) / np.float32(_CODES)).astype(np.float32).view(np.uint32)
    factors: Floats = ((bits + np.uint32(0xFFFF)) & np.uint32(0xFFFF0000)).view(np.float32)
    return factors


def _search(blocks: Floats, shares: Floats) -> tuple[Floats, Floats]:
    """Returns scales and lowest values of blocks, by least squares from several starts."""
    lowest: Floats = np.minimum(blocks.min(axis=2), np.float32(0))
    span = np.maximum(blocks.max(axis=2), np.float32(0)) - lowest
    own = blocks.max(axis=2) - blocks.min(axis=2)
    mean: Floats = (blocks * shares).sum(axis=2)
    best = np.full(span.shape, np.inf, np.float32)
    scales, minima = np.ones_like(span), lowest.copy()
    for steps in _SPANS:
        scale = _divider(np.where(blocks.min(axis=2) > 0, span, own) / np.float32(steps))
        minimum = lowest + np.maximum(np.float32(0), (span - _TOP * scale) / 2)
        for _ in range(_REFITS):
            values = np.rint((blocks - minimum[:, :, None]) / scale[:, :, None]).clip(0, _TOP)
            weighted = values * shares
            first, second = weighted.sum(axis=2), (weighted * values).sum(axis=2)
            product = (weighted * blocks).sum(axis=2)
            spread = second - first * first
            slope = (product - mean * first) / np.where(spread > 1e-6, spread, np.float32(1))
            scale = np.where((spread > 1e-6) & (slope > 0), slope, scale)
            minimum = mean - scale * first
            # Minima above zero cannot be stored; the scale alone is fitted then.
            above = minimum > 0
            scale = np.where(above & (second > 0) & (product > 0), product / _divider(second), scale)
            minimum = np.where(above, np.float32(0), minimum)
        error = (np.square(blocks - values * scale[:, :, None] - minimum[:, :, None]) * shares).sum(axis=2)
        better = error < best
        best, scales = np.where(better, error, best), np.where(better, scale, scales)
        minima = np.where(better, minimum, minima)
    return scales, minima


def _coded(stored: Floats, factors: Floats, least: int) -> Bytes:
    codes: Bytes = np.rint(stored / _divider(factors)[:, None]).clip(least, _CODES).astype(np.uint8)
    return codes


def _fitted(weights: Floats, chances: Floats) -> FittedRows:
    """Fits each block by itself."""
    blocks, shares = _by_block(weights), _shares(chances)
    scales, minima = _search(blocks, shares)
    scale_factors = _factors(scales)
    scale_codes = _coded(scales, scale_factors, 1)
    exact = scale_codes * scale_factors[:, None]
    # The minima follow the rounded scales.
    values = np.rint((blocks - minima[:, :, None]) / scales[:, :, None]).clip(0, _TOP)
    minima = np.maximum(exact * (values * shares).sum(axis=2) - (blocks * shares).sum(axis=2), np.float32(0))
    minimum_factors = _factors(minima)
    minimum_codes = _coded(minima, minimum_factors, 0)
    offsets = (minimum_codes * minimum_factors[:, None])[:, :, None]
    values = np.rint((blocks + offsets) / _divider(exact)[:, :, None]).clip(0, _TOP)
    kept = values.astype(np.uint8).reshape(len(weights), -1)[:, : weights.shape[1]]
    return FittedRows(kept, scale_codes, minimum_codes, scale_factors, minimum_factors)


@dataclass(frozen=True, slots=True)
class _Group:
    """Inputs whose rounding errors are compensated among each other.

    Attributes:
        blocks: The inputs of each of their blocks, the largest first, and blocks with the largest inputs first: what is
            rounded first can be made up for by most others.
        factor: The upper triangular Cholesky factor of the inverse of the damped moments, in the order of the blocks.
    """

    inputs: slice
    blocks: list[NDArray[np.int64]]
    moments: Floats
    factor: Floats


def _groups(moments: Floats) -> list[_Group]:
    groups = []
    for first in range(0, len(moments), COMPENSATED_INPUTS):
        inputs = slice(first, min(first + COMPENSATED_INPUTS, len(moments)))
        own = moments[inputs, inputs].astype(np.float64)
        sizes = np.diagonal(own).copy()
        damped = own * (1 - _SHRINKAGE) + np.diag(_SHRINKAGE * sizes + _DAMPING * sizes.mean() + 1e-12)
        blocks = [
            np.argsort(-sizes[begin : begin + BLOCK], kind="stable") + begin for begin in range(0, len(own), BLOCK)
        ]
        blocks.sort(key=lambda block: -float(sizes[block].sum()))
        order = np.concatenate(blocks)
        factor = np.linalg.cholesky(np.linalg.inv(damped[np.ix_(order, order)])).T.astype(np.float32)
        groups.append(_Group(inputs, [block + first for block in blocks], moments[inputs, inputs], factor))
    return groups


def _error(difference: Floats, chances: Floats, groups: list[_Group]) -> NDArray[np.float64]:
    if not groups:
        return (np.square(difference) @ chances).astype(np.float64)
    total = np.zeros(len(difference))
    for group in groups:
        part = difference[:, group.inputs]
        total += np.maximum(((part @ group.moments) * part).sum(axis=1), 0)
    return total


def _compensated(weights: Floats, plain: FittedRows, chances: Floats, groups: list[_Group]) -> FittedRows:
    """Rounds input by input, and adds what each rounding changes to the inputs that follow it in its group."""
    left = weights.copy()
    values = np.empty(weights.shape, np.uint8)
    scales, minima = np.empty_like(plain.scales), np.empty_like(plain.minima)
    for group in groups:
        done = 0
        for number, inputs in enumerate(group.blocks):
            block = left[:, inputs]
            at = int(inputs.min()) // BLOCK
            scale, minimum = _search(_by_block(block), _shares(chances[inputs]))
            scales[:, at] = _coded(scale, plain.scale_factors, 1)[:, 0]
            minima[:, at] = _coded(-minimum, plain.minimum_factors, 0)[:, 0]
            step = scales[:, at] * plain.scale_factors
            offset = minima[:, at] * plain.minimum_factors
            divider = _divider(step)
            factor = group.factor[done:, done:]
            changes = np.empty_like(block)
            for i, single in enumerate(inputs):
                rounded = np.rint((block[:, i] + offset) / divider).clip(0, _TOP)
                values[:, single] = rounded
                changes[:, i] = (block[:, i] - (rounded * step - offset)) / factor[i, i]
                block[:, i + 1 :] -= changes[:, i, None] * factor[i, i + 1 : inputs.size]
            done += inputs.size
            if number + 1 < len(group.blocks):
                others = np.concatenate(group.blocks[number + 1 :])
                left[:, others] -= changes @ factor[: inputs.size, inputs.size :]
    return FittedRows(values, scales, minima, plain.scale_factors, plain.minimum_factors)


def _replaced(rows: FittedRows, numbers: NDArray[np.int64], others: FittedRows) -> FittedRows:
    def of(name: str) -> NDArray[Any]:
        values: NDArray[Any] = getattr(rows, name).copy()
        values[numbers] = getattr(others, name)
        return values

    return FittedRows(*map(of, FittedRows.__slots__))
