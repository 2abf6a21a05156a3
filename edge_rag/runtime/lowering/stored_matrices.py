"""Finding the quantized matrices of a graph by what the nodes that read them say."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto

from edge_rag.runtime.lowering.onnx_graph import GraphWalk, attributes
from edge_rag.runtime.lowering.stored_tensors import StoredTensors
from edge_rag.runtime.lowering.weight_packing import (
    BlockFormat,
    PackedMatrix,
    alternate,
    dequantize,
    matmul_nbits_columns,
    pack_matmul_nbits,
)

_INPUTS_OF_PRODUCT = 6
_KNOWN_OF_PRODUCT = frozenset({"K", "N", "bits", "block_size", "accuracy_level"})
_DEFAULTS_OF_TABLE = {"bits": 4, "block_size": 128, "gather_axis": 0, "quantize_axis": 1}


@dataclass(frozen=True, slots=True)
class StoredMatrix:
    """A matrix as ``MatMulNBits`` stores it.

    Attributes:
        form: Its size and precision.
        weights: Name of the initializer with the integers.
        scales: Name of the initializer with the scales.
        zero_points: Name of the initializer with the zero points; empty if there is none.
    """

    form: BlockFormat
    weights: str
    scales: str
    zero_points: str

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its tensors."""
        return tuple(filter(None, (self.weights, self.scales, self.zero_points)))


@dataclass(frozen=True, slots=True)
class Packing:
    """What one packed matrix is made of: one stored matrix, or the gate's and the one it opens for.

    Attributes:
        matrices: One, or two that alternate.
    """

    matrices: tuple[StoredMatrix, ...]

    @property
    def inputs(self) -> list[str]:
        """The names of its tensors, as inputs of a node."""
        name = "+".join(matrix.weights for matrix in self.matrices)
        points = [f"{name}.zero_points"] if any(matrix.zero_points for matrix in self.matrices) else []
        return [f"{name}.packed", f"{name}.scales", *points]

    @property
    def attributes(self) -> dict[str, int]:
        """The attributes K, N, bits and block_size of a node that reads it."""
        form = self.matrices[0].form
        columns = form.columns * len(self.matrices)
        return {"K": form.rows, "N": columns, "bits": form.bits, "block_size": form.block_size}

    def pack(self, stored: StoredTensors) -> PackedMatrix:
        """Reads and packs the matrix.

        Raises:
            ModelFolderInvalid: Its weights are missing.
            ValueError: They are not as many as the graph says.
        """
        packed = [pack_matmul_nbits(matrix.form, *_arrays(matrix, stored)) for matrix in self.matrices]
        return packed[0] if len(packed) == 1 else alternate(*packed)


def matrix_of_product(node: onnx.NodeProto, stored: StoredTensors) -> StoredMatrix | None:
    """Returns the matrix of a ``MatMulNBits``; None where the node is another or the matrix has no packed form."""
    if node.op_type != "MatMulNBits":
        return None
    found = {"bits": 4} | attributes(node)
    inputs = list(node.input) + [""] * (_INPUTS_OF_PRODUCT - len(node.input))
    _, weights, scales, points, group_indices, _ = inputs
    if group_indices or any(value for name, value in found.items() if name not in _KNOWN_OF_PRODUCT):
        return None
    return _matrix(found["K"], found["N"], found, (weights, scales, points), stored)


def matrix_of_table(
    node: onnx.NodeProto, walk: GraphWalk, stored: StoredTensors, others: Collection[StoredMatrix]
) -> StoredMatrix | None:
    """Returns the matrix whose columns are the rows of a look-up table, if it has a packed form.

    Args:
        node: A ``Gather`` or ``GatherBlockQuantized`` is a look-up; any other is not.
        walk: The graph.
        stored: Its weights.
        others: The matrices of the products; of two that are equal, theirs is returned, so that there is one copy. A
            table in float32 stands for the 8-bit matrix that it was rounded to, or else for none.
    """
    if node.op_type == "GatherBlockQuantized":
        matrix = _matrix_of_quantized_table(node, walk, stored)
        return None if matrix is None else _shared(matrix, node, walk, stored, others)
    table = stored.find(node.input[0]) if node.op_type == "Gather" else None
    if table is None or table.data_type != TensorProto.FLOAT or attributes(node).get("axis", 0) != 0:
        return None
    return next((other for other in others if _is_rounded(table, other, stored)), None)


def _matrix_of_quantized_table(node: onnx.NodeProto, walk: GraphWalk, stored: StoredTensors) -> StoredMatrix | None:
    found = _DEFAULTS_OF_TABLE | attributes(node)
    if any(found[name] != value for name, value in _DEFAULTS_OF_TABLE.items() if name.endswith("axis")):
        return None
    points = node.input[3] if len(node.input) > 3 else ""
    weights, scales = stored.find(_before_reshape(node.input[0], walk)), stored.find(node.input[2])
    if weights is None or scales is None or not scales.dims:
        return None
    columns = scales.dims[0]
    rows = int(np.prod(weights.dims)) * 8 // found["bits"] // columns
    if rows % found["block_size"]:
        return None  # MatMulNBits fills the last block up, this table does not
    return _matrix(rows, columns, found, (weights.name, scales.name, points), stored)


def _shared(
    table: StoredMatrix, node: onnx.NodeProto, walk: GraphWalk, stored: StoredTensors, others: Collection[StoredMatrix]
) -> StoredMatrix | None:
    """Returns the product's matrix that a table is equal to, else the table's own, unless that has a product's name.

    Where a table's rows end in a part of a block, the table has whole blocks, and what is too much is cut off later.
    """
    for other in others:
        form = other.form
        whole = replace(form, rows=form.blocks * form.block_size)
        cut = table.form == whole and _is_cut_to(form.rows, node, walk)
        if (table.form == form or cut) and _equal(replace(table, form=form), other, stored):
            return other
    named = {name for other in others for name in other.names}
    return None if named.intersection(table.names) else table


def _is_cut_to(rows: int, node: onnx.NodeProto, walk: GraphWalk) -> bool:
    """Whether all that is read of a look-up is its first so many features."""
    readers = walk.consumers(node.output[0])
    return bool(readers) and all(
        reader.op_type == "Slice" and [walk.constant_integers(name) for name in reader.input[1:]] == [[0], [rows], [-1]]
        for reader in readers
    )


def _before_reshape(name: str, walk: GraphWalk) -> str:
    node = walk.producer(name)
    return node.input[0] if node is not None and node.op_type == "Reshape" else name


def _matrix(
    rows: int, columns: int, found: dict[str, Any], names: tuple[str, str, str], stored: StoredTensors
) -> StoredMatrix | None:
    kinds = (TensorProto.UINT8, TensorProto.FLOAT, TensorProto.UINT8)
    for name, kind in zip(names, kinds, strict=True):
        tensor = stored.find(name)
        if tensor.data_type != kind if tensor is not None else name:
            return None
    try:
        form = BlockFormat(rows, columns, found["bits"], found["block_size"])
    except ValueError:
        return None
    return StoredMatrix(form, *names)


def _equal(one: StoredMatrix, other: StoredMatrix, stored: StoredTensors) -> bool:
    """Whether two matrices of a graph hold the same values."""
    if one.form != other.form or len(one.names) != len(other.names):
        return False
    return all(
        mine == theirs or np.array_equal(stored.array(mine).reshape(-1), stored.array(theirs).reshape(-1))
        for mine, theirs in zip(one.names, other.names, strict=True)
    )


def _is_rounded(table: TensorProto, matrix: StoredMatrix, stored: StoredTensors) -> bool:
    """Whether an 8-bit matrix is a float32 table, turned over and rounded."""
    form = matrix.form
    if form.bits != 8 or tuple(table.dims) != (form.columns, form.rows):
        return False
    values = stored.array(table.name)
    for columns, part in matmul_nbits_columns(form, *_arrays(matrix, stored)):
        steps = np.repeat(part.scales, form.block_size, axis=0)[: form.rows]
        if (np.abs(dequantize(part) - values[columns].T) > np.abs(steps)).any():
            return False
    return True


def _arrays(matrix: StoredMatrix, stored: StoredTensors) -> list[NDArray[Any]]:
    return [stored.array(name) for name in matrix.names]
