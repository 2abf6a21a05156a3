"""Quantized matrices as the ops take them, the ops alone in a graph, and what they compute in numpy."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import helper

from tests.unit.ops.op_graph import BUILD_VARIABLE, open_node

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]

LANES, QUAD = 16, 4


@dataclass(frozen=True)
class Shape:
    """The attributes of an op on a quantized matrix."""

    K: int
    N: int
    bits: int = 4
    block_size: int = 32
    gated: int = 0

    @property
    def padded(self) -> int:
        return -(-self.K // 8) * 8

    @property
    def blocks(self) -> int:
        return -(-self.K // self.block_size)

    @property
    def panels(self) -> int:
        return -(-self.N // (LANES << self.gated)) << self.gated

    @property
    def outputs(self) -> int:
        return self.N >> self.gated


@dataclass(frozen=True)
class Matrix:
    """Integers [K, N], with scales and zero points [blocks, N], or None where every zero point is the middle.

    Where there are minima, they are of the scales' type; factors [groups, N] are for scales of type uint8.
    """

    shape: Shape
    integers: Bytes
    scales: NDArray[Any]
    zero_points: Bytes | None
    minima: NDArray[Any] | None = None
    scale_factors: Floats | None = None
    minimum_factors: Floats | None = None

    @classmethod
    def random(cls, shape: Shape, seed: int, zero_points: bool) -> Matrix:
        rng = np.random.default_rng(seed)
        blocks = (shape.blocks, shape.N)
        return cls(
            shape,
            rng.integers(0, 1 << shape.bits, (shape.K, shape.N), np.uint8),
            rng.uniform(0.5, 1.5, blocks).astype(np.float32) * np.float32(shape.K**-0.5 / (1 << shape.bits)),
            rng.integers(0, 1 << shape.bits, blocks, np.uint8) if zero_points else None,
        )

    @classmethod
    def stored(cls, shape: Shape, seed: int, kind: str, minima: bool, groups: int = 1) -> Matrix:
        """Scales as the kind of type says, in as many groups where that is uint8; and minima, or none."""
        rng = np.random.default_rng(seed)
        plain = cls.random(shape, seed, zero_points=False)
        least = (-plain.scales * rng.uniform(-2, 1 << shape.bits, plain.scales.shape)).astype(np.float32)
        if kind != "uint8":
            stored = least.astype(kind) if minima else None
            return cls(shape, plain.integers, plain.scales.astype(kind), None, stored)
        codes = [rng.integers(0, 256, plain.scales.shape, np.uint8) for _ in range(2)]
        factors: list[Floats] = [(source[:groups] / 256).astype(np.float32) for source in (plain.scales, least)]
        if minima:
            return cls(shape, plain.integers, codes[0], None, codes[1], factors[0], factors[1])
        return cls(shape, plain.integers, codes[0], None, None, factors[0])

    @property
    def inputs(self) -> tuple[tuple[str, str], ...]:
        """Name and type of each input after the first; an empty name is one that is left out."""
        stored = [("weights", "uint8"), ("scales", self.scales.dtype.name)]
        for name in ("zero_points", "", "minima", "scale_factors", "minimum_factors"):
            values = getattr(self, name) if name else None
            stored.append(("", "") if values is None else (name, values.dtype.name))
        while not stored[-1][0]:
            stored.pop()
        return tuple(stored)

    def _by_row(self, stored: NDArray[Any], factors: Floats | None) -> NDArray[np.float64]:
        counted: Floats = stored.astype(np.float32)
        if factors is not None:
            counted = counted * np.repeat(factors, stored.shape[0] // factors.shape[0], axis=0)
        return counted[np.arange(self.shape.K) // self.shape.block_size].astype(np.float64)

    def values(self) -> NDArray[np.float64]:
        block = np.arange(self.shape.K) // self.shape.block_size
        scales = self._by_row(self.scales, self.scale_factors)
        if self.minima is not None:
            return self.integers * scales + self._by_row(self.minima, self.minimum_factors)
        if self.zero_points is None:
            return (self.integers.astype(np.float64) - (1 << (self.shape.bits - 1))) * scales
        return (self.integers.astype(np.float64) - self.zero_points[block]) * scales

    def rounded(self) -> Floats:
        if self.minima is None:
            return self.values().astype(np.float32)
        scales, minima = (
            self._by_row(stored, factors).astype(np.float32)
            for stored, factors in ((self.scales, self.scale_factors), (self.minima, self.minimum_factors))
        )
        return self.integers.astype(np.float32) * scales + minima

    def feeds(self) -> dict[str, NDArray[Any]]:
        """The ops' inputs."""
        shape = self.shape
        columns = np.full(shape.panels * LANES, -1)
        if shape.gated:
            order = np.arange(shape.outputs)
            columns[order // LANES * 2 * LANES + order % LANES] = order
            columns[order // LANES * 2 * LANES + LANES + order % LANES] = shape.outputs + order
        else:
            columns[: shape.N] = np.arange(shape.N)
        integers = np.full((shape.padded, columns.size), 1 << (shape.bits - 1), np.uint8)
        integers[: shape.K] = np.where(columns >= 0, self.integers[:, columns], 1 << (shape.bits - 1))
        quads = integers.reshape(shape.padded // QUAD, QUAD, shape.panels, LANES).transpose(2, 0, 3, 1)
        lines: Bytes = quads.reshape(shape.panels, -1, LANES * QUAD)
        if shape.bits == 4:
            lines = lines[:, 0::2] | (lines[:, 1::2] << 4).astype(np.uint8)
        feeds: dict[str, NDArray[Any]] = {
            "weights": lines.reshape(shape.panels, -1),
            "scales": self._by_panel(self.scales, columns),
        }
        for name, _ in self.inputs[2:]:
            if name:
                feeds[name] = self._by_panel(getattr(self, name), columns)
        return {name: np.ascontiguousarray(array) for name, array in feeds.items()}

    def _by_panel(self, of_blocks: NDArray[Any], columns: NDArray[np.int64]) -> NDArray[Any]:
        chosen = np.where(columns >= 0, of_blocks[:, columns], 0).astype(of_blocks.dtype)
        return chosen.reshape(-1, self.shape.panels, LANES).swapaxes(0, 1)


def open_matrix_op(op: str, matrix: Matrix, **attributes: int) -> ort.InferenceSession:
    return _open(op, matrix.shape, matrix.inputs, tuple(attributes.items()), os.environ.get(BUILD_VARIABLE, ""))


def open_anew(op: str, matrix: Matrix, **attributes: int) -> ort.InferenceSession:
    build = os.environ.get(BUILD_VARIABLE, "")
    return _open.__wrapped__(op, matrix.shape, matrix.inputs, tuple(attributes.items()), build)


@cache
def _open(
    op: str, shape: Shape, matrix: tuple[tuple[str, str], ...], attributes: tuple[tuple[str, int], ...], build: str
) -> ort.InferenceSession:
    rows = ("indices", "int64") if op == "QuantizedRows" else ("a", "float32")
    kinds = [rows, *matrix]
    values = {"K": shape.K, "N": shape.N, "bits": shape.bits, "block_size": shape.block_size}
    if op == "QuantizedMatMul" and shape.gated:
        values["gated"] = shape.gated
    node = helper.make_node(op, [n for n, _ in kinds], ["y"], domain="ai.edge_rag", **(values | dict(attributes)))
    return open_node(node, {name: helper.np_dtype_to_tensor_dtype(np.dtype(kind)) for name, kind in kinds if name})


def run_matrix_op(op: str, matrix: Matrix, first: NDArray[Any]) -> Floats:
    session = open_matrix_op(op, matrix)
    name = session.get_inputs()[0].name
    output: Floats = session.run(None, {name: first} | matrix.feeds())[0]
    return output


def _quantized(activations: Floats, block_size: int) -> NDArray[np.float64]:
    """The activations as the op sees them: 8 bits, a scale for every row and block."""
    rounded = np.empty(activations.shape, np.float64)
    for begin in range(0, activations.shape[-1], block_size):
        block = activations[..., begin : begin + block_size]
        largest = np.abs(block).max(axis=-1, keepdims=True)
        inverse = np.divide(np.float32(127), largest, out=np.zeros_like(largest), where=largest > 0)
        scale = (largest / np.float32(127)).astype(np.float64)
        rounded[..., begin : begin + block_size] = np.rint(block * inverse) * scale
    return rounded


def product(matrix: Matrix, activations: Floats) -> NDArray[np.float64]:
    result: NDArray[np.float64] = _quantized(activations, matrix.shape.block_size) @ matrix.values()
    if not matrix.shape.gated:
        return result
    gate, operand = np.split(result, 2, axis=-1)
    silu: NDArray[np.float64] = gate * np.exp(-np.logaddexp(0, -gate))
    return silu * operand


def magnitude(matrix: Matrix, activations: Floats) -> NDArray[np.float64]:
    """The product of magnitudes, which rounding errors are to be compared with: there nothing cancels out."""
    result: NDArray[np.float64] = np.abs(_quantized(activations, matrix.shape.block_size)) @ np.abs(matrix.values())
    if not matrix.shape.gated:
        return result
    gate, operand = np.split(result, 2, axis=-1)
    return (1 + gate) * operand
