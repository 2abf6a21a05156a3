"""Quantizes a decoder: moments of inputs from texts, balanced keys, matrices of 4 bits kept on the disk, 8 bits chosen.

One layer's weights are in memory at a time; fitted layers are on the disk until the graph is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from edge_rag.runtime.lowering.decoder_graph import DecoderDescription
from edge_rag.runtime.lowering.reference_decoder import ReferenceWeights, observe_inputs, reference_logits
from edge_rag.runtime.lowering.weight_packing import QuantizedMatrix, beside
from edge_rag.runtime.quantization.blocks import BLOCK, COMPENSATED_INPUTS, FittedRows, fit_rows, joined, round_rows

Floats = NDArray[np.float32]

_ROWS_AT_ONCE: Final = 16_384
"""Rows of a matrix that are read and fitted at a time."""

NARROW_BITS: Final = 4.6
"""Bits a weight up to which the most frequent tokens get 8 bits when all other matrices have 4."""

_FREQUENT_SHARE: Final = 1 / 3
"""Share of the tokens of texts that must be among those of 8 bits, otherwise there are none."""

_TOKEN_STEP: Final = 16
"""The number of tokens of 8 bits is a multiple of this, so that both parts fill whole panels."""

_VOCABULARY: Final = ("embeddings", "head")

UNITS: Final = (("query", "key", "value"), ("attention_output",), ("gate", "up"), ("down",))
"""Matrices of a layer that have the same precision, since they are multiplied as one."""


class SourceWeights(ReferenceWeights, Protocol):
    """The weights of the original, with their sizes."""

    def shape(self, name: str) -> tuple[int, int]:
        """Returns the outputs and inputs of a matrix."""
        ...


class BalancedWeights:
    """The same model with rotary pairs of its keys equally large, and queries smaller by as much.

    A key is stored as 8-bit integers with one scale a token, so that a pair much larger than the others takes their
    precision. Factors are equal within a pair, with which rotation commutes, and powers of two, which round nothing.

    Args:
        factors: Of each layer's keys, float32 [key heads, head size]; all heads alike if there are head norms.
    """

    def __init__(self, weights: SourceWeights, description: DecoderDescription, factors: Mapping[int, Floats]) -> None:
        self._weights = weights
        self._description = description
        self._factors = factors

    def has(self, name: str) -> bool:
        return self._weights.has(name)

    def shape(self, name: str) -> tuple[int, int]:
        return self._weights.shape(name)

    def rows(self, name: str, rows: NDArray[np.int64] | slice = slice(None)) -> Floats:
        """Returns rows of a matrix, float32 [rows, inputs]."""
        found = self._weights.rows(name, rows)
        factors = None if self._description.head_norms else self._of(name)
        return found if factors is None else found * factors[rows, None]

    def vector(self, name: str) -> Floats:
        found = self._weights.vector(name)
        norms = self._description.head_norms
        if norms != name.endswith("_norm"):
            return found
        factors = self._of(name.removesuffix("_norm" if norms else ".bias"))
        return found if factors is None else found * factors[: found.size]

    def _of(self, name: str) -> Floats | None:
        number, _, part = name.partition(".")
        if part not in ("query", "key") or int(number) not in self._factors:
            return None
        factors = self._factors[int(number)]
        if part == "query":
            factors = np.repeat(1 / factors, self._description.query_heads // len(factors), axis=0)
        return factors.reshape(-1)


def key_factors(
    description: DecoderDescription, weights: ReferenceWeights, texts: list[NDArray[np.int64]]
) -> dict[int, Floats]:
    """Returns the factors that make the rotary pairs of each layer's keys equally large on texts.

    Args:
        texts: Token ids, at least one each.
    """
    factors: dict[int, Floats] = {}

    def observe(name: str, inputs: list[Floats]) -> None:
        number, _, kind = name.partition(".")
        if kind == "keys":
            factors[int(number)] = _balanced(description, int(number), inputs)

    observe_inputs(description, weights, texts, observe)
    return factors


def _balanced(description: DecoderDescription, number: int, keys: list[Floats]) -> Floats:
    """Returns float32 [key heads, head size], powers of two."""
    largest = np.stack([np.quantile(np.abs(each), 0.999, axis=1) for each in keys]).max(axis=0)
    rotary = description.layers[number].rotary
    pairs = 0 if rotary is None else description.rotaries[rotary].frequencies.size
    both = np.maximum(largest[:, :pairs], largest[:, pairs : 2 * pairs])
    largest[:, : 2 * pairs] = np.concatenate([both, both], axis=1)
    if description.head_norms:
        largest = np.repeat(largest.max(axis=0, keepdims=True), len(largest), axis=0)
    logarithms = np.log2(np.maximum(largest, 1e-6))
    shifts = np.rint(np.median(logarithms, axis=1, keepdims=True) - logarithms)
    factors: Floats = np.exp2(shifts.clip(-12, 12)).astype(np.float32)
    return factors


@dataclass(frozen=True, slots=True)
class Unit:
    """Matrices of the same precision."""

    names: tuple[str, ...]
    weights: int


class FittedDecoder:
    """A decoder's matrices in 4 bits, on the disk."""

    def __init__(self, description: DecoderDescription, weights: SourceWeights, folder: Path) -> None:
        self._description = description
        self.weights = weights
        self._folder = folder
        self.errors: dict[str, float] = {}
        """Of each matrix the squared error of its products, as a share of the products' squares."""
        self.frequent = 0
        """Tokens, the first of the vocabulary, that have 8 bits in embeddings and head."""

    @property
    def units(self) -> list[Unit]:
        whole = ["embeddings", *(["head"] if self.weights.has("head") else [])]
        layers = range(len(self._description.layers))
        names: list[tuple[str, ...]] = [(name,) for name in whole]
        names += [tuple(f"{number}.{part}" for part in unit) for number in layers for unit in UNITS]
        return [Unit(each, sum(int(np.prod(self.weights.shape(name))) for name in each)) for each in names]

    def fit(self, texts: list[NDArray[np.int64]], report: Callable[[str], None]) -> None:
        """Fits all matrices, with the moments of their inputs on texts; chooses the tokens that have 8 bits.

        Vocabularies made by merging begin with the most frequent tokens. These few rows decide most of what the
        precision of a head costs, and a small model has many of its weights there.

        Args:
            texts: Token ids, at least one each.
        """
        layers = len(self._description.layers)
        if self.weights.has("head"):
            report("fitting the embeddings to 4 bits")
            self.fit_matrix("embeddings", None)

        def observe(name: str, inputs: list[Floats]) -> None:
            number, _, kind = name.partition(".")
            unit = next((unit for unit in UNITS if unit[0] == kind), ())
            if name == "head":
                report("fitting the head to 4 bits")
                self.fit_matrix("head" if self.weights.has("head") else "embeddings", _moments(inputs))
            elif unit:
                if unit == UNITS[0]:
                    report(f"fitting layer {int(number) + 1} of {layers} to 4 bits")
                moments = _moments(inputs)
                for part in unit:
                    self.fit_matrix(f"{number}.{part}", moments)

        observe_inputs(self._description, self.weights, texts, observe)
        self.frequent = self._frequent_tokens(texts)

    def _frequent_tokens(self, texts: list[NDArray[np.int64]]) -> int:
        weights = sum(unit.weights for unit in self.units)
        left = (NARROW_BITS - MixedWeights(self, frozenset()).bits_per_weight) * weights
        shapes = [self.weights.shape(name) for name in _VOCABULARY if self.weights.has(name)]
        cost = sum(_row_bits(inputs, wide=True) - _row_bits(inputs, wide=False) for _, inputs in shapes)
        tokens = min(int(max(left, 0) // cost), shapes[0][0] // 4) // _TOKEN_STEP * _TOKEN_STEP
        return tokens if float(np.mean(np.concatenate(texts) < tokens)) >= _FREQUENT_SHARE else 0

    def split(self, name: str) -> bool:
        """Whether a matrix of 4 bits has first tokens of 8 bits."""
        return self.frequent > 0 and name in _VOCABULARY and self.weights.has(name)

    def rows(self, name: str) -> FittedRows:
        with np.load(self._folder / f"{name}.npz", allow_pickle=False) as kept:
            return FittedRows(*(kept[field] for field in FittedRows.__slots__))

    def fit_matrix(self, name: str, moments: Floats | None) -> None:
        """Fits a matrix and keeps it on the disk.

        Args:
            moments: Mean products of pairs of its inputs; None: they are alike and independent.
        """
        outputs = self.weights.shape(name)[0]
        found: list[FittedRows] = []
        error = energy = 0.0
        for first in range(0, outputs, _ROWS_AT_ONCE):
            weights = self.weights.rows(name, slice(first, min(first + _ROWS_AT_ONCE, outputs)))
            rows, errors = fit_rows(weights, moments)
            found.append(rows)
            error += float(errors.sum())
            energy += _energy(weights, moments)
        self.errors[name] = error / energy if energy > 0 else 0.0
        rows = joined(found)
        np.savez(
            self._folder / f"{name}.npz",
            values=rows.values,
            scales=rows.scales,
            minima=rows.minima,
            scale_factors=rows.scale_factors,
            minimum_factors=rows.minimum_factors,
        )


def _row_bits(inputs: int, *, wide: bool) -> int:
    blocks = -(-inputs // BLOCK)
    return inputs * 8 + blocks * 8 + 16 if wide else inputs * 4 + blocks * 16 + 32


def _moments(inputs: list[Floats]) -> Floats:
    """Returns the mean products of pairs of inputs, float32 [inputs, inputs], zero outside the compensated groups."""
    size, count = inputs[0].shape[1], sum(map(len, inputs))
    moments = np.zeros((size, size), np.float32)
    for first in range(0, size, COMPENSATED_INPUTS):
        part = slice(first, first + COMPENSATED_INPUTS)
        for each in inputs:
            moments[part, part] += each[:, part].T @ each[:, part] / np.float32(count)
    return moments


def _energy(weights: Floats, moments: Floats | None) -> float:
    if moments is None:
        return float(np.square(weights, dtype=np.float32).sum(dtype=np.float64))
    return float((np.square(weights) @ np.diagonal(moments)).sum(dtype=np.float64))


class MixedWeights:
    """Implements ``DecoderWeights``: matrices in 4 bits as they were fitted, others rounded to 8.

    Args:
        wide: Names of the matrices of 8 bits.
    """

    def __init__(self, fitted: FittedDecoder, wide: frozenset[str]) -> None:
        self._fitted = fitted
        self._wide = wide

    def has(self, name: str) -> bool:
        return self._fitted.weights.has(name)

    def matrix(self, name: str) -> QuantizedMatrix:
        """Returns a matrix [inputs, outputs]."""
        if name in self._wide:
            return self._rounded(name, self._fitted.weights.shape(name)[0])
        return self._fitted.rows(name).matrix

    def by_token(self, name: str) -> list[QuantizedMatrix]:
        """Returns the embeddings or the head, [width, tokens], where it has 4 bits with the first tokens in 8."""
        if name in self._wide or not self._fitted.split(name):
            return [self.matrix(name)]
        rest = self._fitted.rows(name).part(slice(self._fitted.frequent, None))
        return [self._rounded(name, self._fitted.frequent), rest.matrix]

    def _rounded(self, name: str, outputs: int) -> QuantizedMatrix:
        """Returns the first outputs of a matrix in 8 bits."""
        parts = [
            round_rows(self._fitted.weights.rows(name, slice(first, min(first + _ROWS_AT_ONCE, outputs))))
            for first in range(0, outputs, _ROWS_AT_ONCE)
        ]
        return beside(parts)

    def vector(self, name: str) -> Floats:
        return self._fitted.weights.vector(name)

    @property
    def bits_per_weight(self) -> float:
        """Bits of all matrices, with their scales, minima and factors, divided by their weights."""
        bits = weights = 0.0
        for unit in self._fitted.units:
            for name in unit.names:
                outputs, inputs = self._fitted.weights.shape(name)
                wide = outputs if name in self._wide else self._fitted.frequent if self._fitted.split(name) else 0
                bits += wide * _row_bits(inputs, wide=True) + (outputs - wide) * _row_bits(inputs, wide=False)
                weights += outputs * inputs
        return bits / weights


class _PartlyFitted:
    """The original's weights with some of them as they were fitted, to measure what these cost."""

    def __init__(self, fitted: FittedDecoder, names: frozenset[str]) -> None:
        self._fitted = fitted
        self._names = names
        self._cache: dict[str, Floats] = {}

    def has(self, name: str) -> bool:
        return self._fitted.weights.has(name)

    def vector(self, name: str) -> Floats:
        return self._fitted.weights.vector(name)

    def rows(self, name: str, rows: NDArray[np.int64] | slice = slice(None)) -> Floats:
        if name not in self._names:
            return self._fitted.weights.rows(name, rows)
        found = self._fitted.rows(name).part(rows).weights
        if self._fitted.split(name):
            frequent = np.arange(self._fitted.weights.shape(name)[0])[rows] < self._fitted.frequent
            found[frequent] = self._fitted.weights.rows(name, rows)[frequent]
        return found


def measured_costs(
    description: DecoderDescription,
    fitted: FittedDecoder,
    texts: list[NDArray[np.int64]],
    divergence: Callable[[list[Floats]], float],
    report: Callable[[str], None],
) -> dict[tuple[str, ...], float]:
    """Measures the cost of 4 bits in each kind of matrix, and distributes it over the layers by their errors.

    Args:
        texts: Token ids, at least one each.
        divergence: Returns how far logits on these texts are from the original's.
    """
    kinds: dict[tuple[str, ...], list[Unit]] = {}
    for unit in fitted.units:
        kinds.setdefault(tuple(name.rpartition(".")[2] for name in unit.names), []).append(unit)
    costs: dict[tuple[str, ...], float] = {}
    for kind, units in kinds.items():
        report(f"measuring what 4 bits cost in {', '.join(kind)}")
        names = frozenset(name for unit in units for name in unit.names)
        total = divergence(reference_logits(description, _PartlyFitted(fitted, names), texts))
        errors = [sum(fitted.errors[name] for name in unit.names) for unit in units]
        whole = sum(errors)
        for unit, error in zip(units, errors, strict=True):
            costs[unit.names] = total * error / whole if whole > 0 else 0.0
    return costs


def wide_units(units: list[Unit], costs: Mapping[tuple[str, ...], float], most: float) -> frozenset[str]:
    """Chooses the matrices that get 8 bits: most divergence saved a byte first, until the rest costs little enough.

    Args:
        costs: Divergence by unit with 4 bits.
        most: Largest divergence of those that keep 4 bits.

    Returns:
        Names of the matrices of 8 bits.
    """
    left = sum(costs.values())
    chosen: set[str] = set()
    for unit in sorted(units, key=lambda each: costs[each.names] / each.weights, reverse=True):
        if left <= most:
            break
        left -= costs[unit.names]
        chosen.update(unit.names)
    return frozenset(chosen)
