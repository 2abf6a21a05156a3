"""Replaces quantized products of a graph by ``ai.edge_rag::QuantizedMatMul`` and ``QuantizedRows``.

One packed matrix serves decoding and prefill and, where the model's embeddings are tied to its head, the look-up of
embeddings. Products without a packed form stay nodes of ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from edge_rag.runtime.lowering.onnx_graph import OPS_DOMAIN, GraphWalk, attributes, drop_unused
from edge_rag.runtime.lowering.onnx_graph import replace as replace_node
from edge_rag.runtime.lowering.weight_packing import (
    PANEL_COLUMNS,
    BlockFormat,
    PackedMatrix,
    StoredTensors,
    WeightsFile,
    alternate,
    dequantize,
    matmul_nbits_columns,
    operator_inputs,
    pack_matmul_nbits,
)

_INPUTS_OF_PRODUCT = 6
_ROUNDING_STEPS = 1.01
"""Largest distance of a rounded value from the original, in steps; the largest value of a block is one step off."""
_KNOWN_OF_PRODUCT = frozenset({"K", "N", "bits", "block_size", "accuracy_level"})
_DEFAULTS_OF_TABLE = {"bits": 4, "block_size": 128, "gather_axis": 0, "quantize_axis": 1}


@dataclass(frozen=True, slots=True)
class StoredMatrix:
    """A matrix as ``MatMulNBits`` stores it.

    Attributes:
        weights: Name of the initializer with the integers.
        zero_points: Name of the initializer with the zero points; empty if there is none.
    """

    form: BlockFormat
    weights: str
    scales: str
    zero_points: str

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.weights, self.scales, self.zero_points)))


@dataclass(frozen=True, slots=True)
class Packing:
    """The source of a packed matrix: one stored matrix, or those of gate and up."""

    matrices: tuple[StoredMatrix, ...]

    @property
    def names(self) -> dict[str, str]:
        name = "+".join(matrix.weights for matrix in self.matrices)
        points = ["zero_points"] if any(matrix.zero_points for matrix in self.matrices) else []
        return {kind: f"{name}.{kind}" for kind in ("packed", "scales", *points)}

    @property
    def attributes(self) -> dict[str, int]:
        form = self.matrices[0].form
        columns = form.columns * len(self.matrices)
        return {"K": form.rows, "N": columns, "bits": form.bits, "block_size": form.block_size}

    def pack(self, stored: StoredTensors) -> PackedMatrix:
        packed = [pack_matmul_nbits(matrix.form, *_arrays(matrix, stored)) for matrix in self.matrices]
        return packed[0] if len(packed) == 1 else alternate(*packed)


def matrix_of_product(node: onnx.NodeProto, stored: StoredTensors) -> StoredMatrix | None:
    """Returns the matrix of a ``MatMulNBits``; None for other nodes, or where it has no packed form."""
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
        node: The node; only ``Gather`` and ``GatherBlockQuantized`` are look-ups.
        others: The matrices of the products; if one is equal, it is returned, so that there is one copy. A float32
            table is replaced only by the 8-bit matrix that was rounded from it.
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
        return None  # MatMulNBits pads the last block, this table does not
    return _matrix(rows, columns, found, (weights.name, scales.name, points), stored)


def _shared(
    table: StoredMatrix, node: onnx.NodeProto, walk: GraphWalk, stored: StoredTensors, others: Collection[StoredMatrix]
) -> StoredMatrix | None:
    """Returns the product's matrix that a table is equal to, else the table's own, unless that has a product's name.

    Where a table's rows end inside a block, the table has whole blocks, and the surplus is cut off later.
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
    """Whether only the first features of a look-up are read."""
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
    if one.form != other.form or len(one.names) != len(other.names):
        return False
    return all(
        mine == theirs or np.array_equal(stored.array(mine).reshape(-1), stored.array(theirs).reshape(-1))
        for mine, theirs in zip(one.names, other.names, strict=True)
    )


def _is_rounded(table: TensorProto, matrix: StoredMatrix, stored: StoredTensors) -> bool:
    """Whether an 8-bit matrix is the transposed and rounded float32 table."""
    form = matrix.form
    if form.bits != 8 or tuple(table.dims) != (form.columns, form.rows):
        return False
    values = stored.array(table.name)
    for columns, part in matmul_nbits_columns(form, *_arrays(matrix, stored)):
        steps = np.repeat(part.scales, form.block_size, axis=0)[: form.rows]
        if (np.abs(dequantize(part) - values[columns].T) > _ROUNDING_STEPS * np.abs(steps)).any():
            return False
    return True


def _arrays(matrix: StoredMatrix, stored: StoredTensors) -> list[NDArray[Any]]:
    return [stored.array(name) for name in matrix.names]


_BIAS = 5


def lower_weights(model: onnx.ModelProto, stored: StoredTensors, file: WeightsFile) -> None:
    """Packs a graph's quantized weights and moves all weights to one file, with one matrix in memory at a time.

    Args:
        model: A paged graph, loaded without external data; changed in place.
    """
    graph = model.graph
    packings = _rewrite(graph, stored)
    drop_unused(graph, "logits")
    for tensor in graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:
            file.store(tensor, stored.content(tensor.name))
    read = dict.fromkeys(name for node in graph.node for name in node.input)
    for packing in (packings[name] for name in read if name in packings):
        names = packing.names
        for ending, values in packing.pack(stored).tensors.items():
            kind = helper.np_dtype_to_tensor_dtype(values.dtype)
            tensor = graph.initializer.add(name=names[ending], data_type=kind, dims=values.shape)
            file.store(tensor, values)


def _rewrite(graph: onnx.GraphProto, stored: StoredTensors) -> dict[str, Packing]:
    """Replaces nodes; returns their packings by the name of the weights, and some that have no reader."""
    walk = GraphWalk(graph)
    matrices = {node.output[0]: found for node in graph.node if (found := matrix_of_product(node, stored))}
    packings: dict[str, Packing] = {}

    def packed(*parts: StoredMatrix) -> Packing:
        packing = Packing(parts)
        return packings.setdefault(packing.names["packed"], packing)

    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        gated = _gated(node, walk, matrices)
        table = matrix_of_table(node, walk, stored, matrices.values())
        if gated is not None:
            source, parts = gated
            nodes.append(_packed_node("QuantizedMatMul", node, source, packed(*parts), node.output[0], gated=1))
        elif node.output[0] in matrices:
            nodes += _product_and_bias(node, packed(matrices[node.output[0]]))
        elif table is not None:
            nodes.append(_packed_node("QuantizedRows", node, node.input[1], packed(table), node.output[0]))
        else:
            nodes.append(node)
    replace_node(graph.node, nodes)
    return packings


def _product_and_bias(node: onnx.NodeProto, packing: Packing) -> list[onnx.NodeProto]:
    bias = node.input[_BIAS] if len(node.input) > _BIAS else ""
    if not bias:
        return [_packed_node("QuantizedMatMul", node, node.input[0], packing, node.output[0])]
    product = f"{node.output[0]}.product"
    add = helper.make_node("Add", [product, bias], [node.output[0]], name=f"{node.name}.bias")
    return [_packed_node("QuantizedMatMul", node, node.input[0], packing, product), add]


def _packed_node(
    kind: str, replaced: onnx.NodeProto, source: str, packing: Packing, result: str, **attributes: int
) -> onnx.NodeProto:
    inputs, sizes = [source, *operator_inputs(packing.names)], packing.attributes
    return helper.make_node(kind, inputs, [result], name=replaced.name, domain=OPS_DOMAIN, **sizes, **attributes)


def _gated(
    node: onnx.NodeProto, walk: GraphWalk, matrices: Mapping[str, StoredMatrix]
) -> tuple[str, tuple[StoredMatrix, StoredMatrix]] | None:
    """Finds SiLU(x gate) * (x up) at its last node, where no other node reads an intermediate value."""
    if node.op_type != "Mul":
        return None
    for activated, up in (node.input, node.input[::-1]):
        gate = _before_silu(activated, walk)
        if gate not in matrices or up not in matrices or gate == up:
            continue
        source, products = _source(gate, walk), (matrices[gate], matrices[up])
        whole = products[0].form == products[1].form and products[0].form.columns % PANEL_COLUMNS == 0
        private = len(walk.consumers(activated)) == len(walk.consumers(up)) == 1
        if whole and private and source is not None and source == _source(up, walk):
            return source, products
    return None


def _before_silu(activated: str, walk: GraphWalk) -> str:
    """Returns the value whose SiLU this is, if the SiLU is its only reader; else an empty name."""
    product = walk.producer(activated)
    if product is None or product.op_type != "Mul":
        return ""
    for value, opened in (product.input, product.input[::-1]):
        sigmoid = walk.producer(opened)
        if sigmoid is not None and sigmoid.op_type == "Sigmoid" and sigmoid.input[0] == value:
            return value if len(walk.consumers(value)) == 2 and len(walk.consumers(opened)) == 1 else ""
    return ""


def _source(product: str, walk: GraphWalk) -> str | None:
    """Returns what a product without a bias multiplies."""
    node = walk.producer(product)
    return None if node is None or any(node.input[_BIAS:]) else node.input[0]
