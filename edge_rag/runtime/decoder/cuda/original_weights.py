"""Packed weights back in the layout of ONNX Runtime's ``MatMulNBits`` and ``GatherBlockQuantized``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from edge_rag.runtime.lowering.onnx_graph import attributes
from edge_rag.runtime.lowering.weight_packing import (
    PANEL_COLUMNS,
    BlockFormat,
    PackedMatrix,
    QuantizedMatrix,
    StoredTensors,
    unpack,
)

Bytes = NDArray[np.uint8]
Halves = NDArray[np.float16]


@dataclass(frozen=True, slots=True)
class OriginalMatrix:
    """A matrix [K, N] as ``MatMulNBits`` stores it.

    Attributes:
        form: Its size and precision.
        weights: uint8 [N, blocks, block_size * bits / 8], the low half of a byte first.
        scales: float16 [N, blocks].
        zero_points: uint8 [N, blocks * bits / 8 rounded up], or None for the default.
    """

    form: BlockFormat
    weights: Bytes
    scales: Halves
    zero_points: Bytes | None


def read_packed(node: onnx.NodeProto, inputs: Sequence[str], stored: StoredTensors) -> PackedMatrix:
    """Reads the matrix of a ``QuantizedMatMul`` or ``QuantizedRows``.

    Args:
        node: Says its size and precision.
        inputs: Names of its weights, its scales and, where it has them, its zero points.
        stored: Where they are.

    Raises:
        ModelFolderInvalid: Weights are missing.
        ValueError: They are not as many as the node says.
    """
    found = attributes(node)
    form = BlockFormat(found["K"], found["N"], found["bits"], found["block_size"])
    weights, scales, *points = [np.asarray(stored.array(name)) for name in inputs if name]
    by_block = (form.panels, form.blocks, PANEL_COLUMNS)
    return PackedMatrix(
        form,
        weights.reshape(form.panels, form.panel_bytes),
        scales.reshape(by_block),
        points[0].reshape(by_block) if points else None,
    )


def part_from_alternate(both: PackedMatrix) -> tuple[PackedMatrix, PackedMatrix]:
    """Turns ``alternate`` around: returns the gate's matrix and the one it opens for."""
    form = replace(both.form, columns=both.form.columns // 2)
    gate, up = (
        PackedMatrix(
            form,
            both.weights[first::2],
            both.scales[first::2],
            None if both.zero_points is None else both.zero_points[first::2],
        )
        for first in (0, 1)
    )
    return gate, up


def original_matrix(packed: PackedMatrix) -> OriginalMatrix:
    """Brings a matrix into ONNX Runtime's layout; scales are rounded to float16."""
    matrix = unpack(packed)
    form = matrix.form
    filled = np.full((form.columns, form.blocks * form.block_size), form.default_zero_point, np.uint8)
    filled[:, : form.rows] = matrix.values.T
    weights = _together(form, filled).reshape(form.columns, form.blocks, -1)
    return OriginalMatrix(form, weights, matrix.scales.T.astype(np.float16), _points(matrix))


def _points(matrix: QuantizedMatrix) -> Bytes | None:
    if matrix.zero_points is None:
        return None
    points = matrix.zero_points.T
    if matrix.form.bits == 4 and points.shape[1] % 2:
        points = np.pad(points, ((0, 0), (0, 1)))
    return _together(matrix.form, points)


def _together(form: BlockFormat, values: NDArray[Any]) -> Bytes:
    """Puts the values of each row into as few bytes as they take."""
    if form.bits == 8:
        return np.ascontiguousarray(values)
    return np.ascontiguousarray(values[:, 0::2] | values[:, 1::2] << np.uint8(4))
