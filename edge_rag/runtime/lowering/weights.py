"""Turns the products with quantized weights of a graph into ``ai.edge_rag::QuantizedMatMul`` and ``QuantizedRows``.

One packed matrix serves decoding and prefill and, where the model's embeddings are tied to its head, the look-up of
embeddings. What has no packed form stays what it is, a node of ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx import TensorProto, helper

from edge_rag.runtime.lowering.graph_edit import OPS_DOMAIN, drop_unused, replace
from edge_rag.runtime.lowering.onnx_graph import GraphWalk
from edge_rag.runtime.lowering.stored_matrices import Packing, StoredMatrix, matrix_of_product, matrix_of_table
from edge_rag.runtime.lowering.stored_tensors import StoredTensors, WeightsFile
from edge_rag.runtime.lowering.weight_packing import PANEL_COLUMNS

_BIAS = 5


def lower_weights(model: onnx.ModelProto, stored: StoredTensors, file: WeightsFile) -> None:
    """Packs a graph's quantized weights and moves all its weights to one file, one matrix in memory at a time.

    Args:
        model: A paged graph, loaded without external data; changed in place.
        stored: Its weights.
        file: Where they go.

    Raises:
        ModelFolderInvalid: Weights are missing.
        ValueError: Weights are not as many as the graph says.
    """
    graph = model.graph
    packings = _rewrite(graph, stored)
    drop_unused(graph, "logits")
    for tensor in graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:
            file.store(tensor, stored.content(tensor.name))
    read = dict.fromkeys(name for node in graph.node for name in node.input)
    for packing in (packings[name] for name in read if name in packings):
        for name, values in zip(packing.inputs, packing.pack(stored).tensors, strict=True):
            kind = helper.np_dtype_to_tensor_dtype(values.dtype)
            tensor = graph.initializer.add(name=name, data_type=kind, dims=values.shape)
            file.store(tensor, values)


def _rewrite(graph: onnx.GraphProto, stored: StoredTensors) -> dict[str, Packing]:
    """Replaces the nodes that can be; returns their packings by the name of the weights, and some that nobody reads."""
    walk = GraphWalk(graph)
    matrices = {node.output[0]: found for node in graph.node if (found := matrix_of_product(node, stored))}
    packings: dict[str, Packing] = {}

    def packed(*parts: StoredMatrix) -> Packing:
        packing = Packing(parts)
        return packings.setdefault(packing.inputs[0], packing)

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
    replace(graph.node, nodes)
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
    inputs, sizes = [source, *packing.inputs], packing.attributes
    return helper.make_node(kind, inputs, [result], name=replaced.name, domain=OPS_DOMAIN, **sizes, **attributes)


def _gated(
    node: onnx.NodeProto, walk: GraphWalk, matrices: Mapping[str, StoredMatrix]
) -> tuple[str, tuple[StoredMatrix, StoredMatrix]] | None:
    """Finds SiLU(x gate) * (x up) at its last node, where nothing else reads a value on the way.

    Returns:
        The name of x, and the matrices of gate and up.
    """
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
    """Returns the value whose SiLU this is, if only that reads it; else an empty name."""
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
