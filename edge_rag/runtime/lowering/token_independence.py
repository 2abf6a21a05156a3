"""Whether a graph, but for its attention, treats every token by itself and so computes the same in any batch."""

from __future__ import annotations

import onnx

from edge_rag.errors import ModelNotLowerable
from edge_rag.runtime.lowering.onnx_graph import GraphWalk, attributes

# fmt: off
_KNOWN_OPS = frozenset({
    "Add", "Cast", "Constant", "Div", "FastGelu", "Gather", "GatherBlockQuantized", "Gelu", "MatMul", "MatMulNBits",
    "Mul", "PagedAttention", "QuickGelu", "Relu", "Reshape", "Sigmoid", "SimplifiedLayerNormalization",
    "SkipSimplifiedLayerNormalization", "Split", "Sub", "Tanh",
})
# fmt: on


def check_tokens_apart(graph: onnx.GraphProto, exempt: frozenset[str]) -> None:
    """Checks every node, and that every value it reads is made by the graph or given to it.

    Args:
        graph: A lowered graph over values [1, tokens, features].
        exempt: Values whose nodes move tokens on purpose.

    Raises:
        ModelNotLowerable: A node is not known to keep tokens apart, or reads what a packed step does not have.
    """
    walk = GraphWalk(graph)
    known = {value.name for value in (*graph.input, *graph.initializer)} | {""}
    for node in graph.node:
        made = node.output[0]
        if made not in exempt and not walk.is_constant(made) and not _keeps_tokens_apart(node, walk):
            raise ModelNotLowerable(f"{node.name}: it is not known whether this {node.op_type} keeps tokens apart")
        for name in node.input:
            if name not in known:
                raise ModelNotLowerable(f"{node.name}: depends on {name}, which has no paged form")
        known.update(node.output)


def _keeps_tokens_apart(node: onnx.NodeProto, walk: GraphWalk) -> bool:
    match node.op_type:
        case "Gather" | "GatherBlockQuantized":
            return walk.is_constant(node.input[0])  # a table, looked up by each token
        case "MatMul":
            return walk.is_constant(node.input[1])
        case "Reshape":
            return walk.constant_integers(node.input[1])[:2] == [0, -1]  # heads apart and together again
        case "Slice":
            return walk.constant_integers(node.input[3] if len(node.input) > 3 else "") == [-1]  # of the features
        case "Split" | "SimplifiedLayerNormalization":
            return bool(attributes(node).get("axis") == -1)
        case _:
            return node.op_type in _KNOWN_OPS
