"""Lowers a decoder graph with ``GroupQueryAttention`` to one with ``ai.edge_rag::PagedAttention``.

The input is a graph of the onnxruntime-genai builder for CPUs: padded batches, a mask, KV tensors that grow. The result
takes a packed step and pages. Nodes between embedding and head stay as they are, because each computes every token by
itself; a node that is not known to do so is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edge_rag.errors import ModelNotLowerable
from edge_rag.runtime.lowering.geometry import PAGE_TOKENS, PagedGeometry
from edge_rag.runtime.lowering.onnx_graph import OPS_DOMAIN, GraphWalk, attributes, drop_unused, rename, replace

_COS, _SIN = 7, 8
_STILL_COS, _STILL_SIN = "edge_rag.still.cos", "edge_rag.still.sin"


@dataclass(frozen=True, slots=True)
class RotaryTables:
    """The rotary tables of a node's queries and keys.

    Attributes:
        cosine: Name of an initializer, float32 [positions, pairs].
        sine: Name of an initializer of the same shape.
    """

    cosine: str
    sine: str
    positions: int
    pairs: int


def rotary_tables(node: onnx.NodeProto, context_length: int, walk: GraphWalk, graph: onnx.GraphProto) -> RotaryTables:
    """Finds a node's tables, and adds missing ones to the graph.

    A long-context model has two pairs of tables and selects one by the length of the text. Keys in pages cannot change
    their rotation when a text outgrows the first pair, so the first pair, for texts of the trained length, is used, and
    the context ends with it.

    A layer without positions gets tables that rotate one pair of elements by 0.

    Raises:
        ModelNotLowerable: The tables are computed in an unknown way.
    """
    rotates = attributes(node).get("do_rotary", 0)
    cosine, sine = (node.input[index] if len(node.input) > index else "" for index in (_COS, _SIN))
    if not rotates:
        if cosine or sine:
            raise ModelNotLowerable(f"{node.name}: has rotary tables and does not rotate")
        shape = (context_length, 1)
        _add(graph, _STILL_COS, np.ones(shape, np.float32))
        _add(graph, _STILL_SIN, np.zeros(shape, np.float32))
        return RotaryTables(_STILL_COS, _STILL_SIN, *shape)
    choice = walk.producer(cosine)
    if choice is not None and choice.op_type == "If" and walk.producer(sine) is choice:
        shorter = min(_branches(choice, cosine, sine, node.name), key=lambda tables: tables[0].shape[0])
        names = (f"edge_rag.{cosine}", f"edge_rag.{sine}")
        for name, table in zip(names, shorter, strict=True):
            _add(graph, name, table)
        return RotaryTables(*names, *shorter[0].shape)
    return RotaryTables(cosine, sine, *walk.initializer_shape(cosine, node.name))


def _branches(
    choice: onnx.NodeProto, cosine: str, sine: str, user: str
) -> list[tuple[np.ndarray[tuple[int, int], np.dtype[np.float32]], np.ndarray[tuple[int, int], np.dtype[np.float32]]]]:
    """Returns the cosines and sines of both branches."""
    found = []
    for branch in (value for value in attributes(choice).values() if isinstance(value, onnx.GraphProto)):
        constants = {node.output[0]: node for node in branch.node if node.op_type == "Constant"}
        tables = []
        for name in (cosine, sine):
            source = constants.get(branch.output[list(choice.output).index(name)].name)
            value = attributes(source).get("value") if source is not None else None
            if not isinstance(value, TensorProto) or value.data_location == TensorProto.EXTERNAL:
                raise ModelNotLowerable(f"{user}: {name} is not one of two stored tables")
            tables.append(numpy_helper.to_array(value).astype(np.float32))
        if tables[0].ndim != 2 or tables[0].shape != tables[1].shape:
            raise ModelNotLowerable(f"{user}: {cosine} and {sine} are not tables of one shape")
        found.append((tables[0], tables[1]))
    return found


def _add(graph: onnx.GraphProto, name: str, values: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> None:
    if all(tensor.name != name for tensor in graph.initializer):
        graph.initializer.append(helper.make_tensor(name, TensorProto.FLOAT, values.shape, values.tobytes(), raw=True))


# fmt: off
_KNOWN_OPS = frozenset({
    "Add", "Cast", "Constant", "Div", "FastGelu", "Gather", "GatherBlockQuantized", "Gelu", "MatMul", "MatMulNBits",
    "Mul", "PagedAttention", "QuickGelu", "Relu", "Reshape", "Sigmoid", "SimplifiedLayerNormalization",
    "SkipSimplifiedLayerNormalization", "Split", "Sub", "Tanh",
})
# fmt: on


def check_token_independence(graph: onnx.GraphProto, exempt: frozenset[str]) -> None:
    """Checks that nodes compute every token by itself, and that all values they read exist.

    Args:
        graph: A lowered graph over values [1, tokens, features].
        exempt: Values whose nodes move tokens intentionally.

    Raises:
        ModelNotLowerable: A node may mix tokens, or reads a value that a packed step does not have.
    """
    walk = GraphWalk(graph)
    known = {value.name for value in (*graph.input, *graph.initializer)} | {""}
    for node in graph.node:
        made = node.output[0]
        if made not in exempt and not walk.is_constant(made) and not _is_token_independent(node, walk):
            raise ModelNotLowerable(f"{node.name}: this {node.op_type} may mix tokens")
        for name in node.input:
            if name not in known:
                raise ModelNotLowerable(f"{node.name}: depends on {name}, which has no paged form")
        known.update(node.output)


def _is_token_independent(node: onnx.NodeProto, walk: GraphWalk) -> bool:
    match node.op_type:
        case "Gather" | "GatherBlockQuantized":
            return walk.is_constant(node.input[0])  # a table, looked up by each token
        case "MatMul":
            return walk.is_constant(node.input[1])
        case "Reshape":
            return walk.constant_integers(node.input[1])[:2] == [0, -1]  # to heads and back
        case "Slice":
            return walk.constant_integers(node.input[3] if len(node.input) > 3 else "") == [-1]  # of the features
        case "Split" | "SimplifiedLayerNormalization":
            return bool(attributes(node).get("axis") == -1)
        case _:
            return node.op_type in _KNOWN_OPS


_AXIS, _TOKENS, _ROWS, _LOGITS = "edge_rag.axis", "edge_rag.tokens", "edge_rag.rows", "edge_rag.logits"

_HEAD_OPS = frozenset({"Add", "Cast", "Div", "MatMul", "MatMulNBits", "Mul", "Tanh"})
_NORMS = frozenset({"SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization"})
_STEP_INPUTS = (
    ("positions", TensorProto.INT32, ["num_tokens"]),
    ("slot_mapping", TensorProto.INT32, ["num_tokens"]),
    ("cumulative_sequence_lengths", TensorProto.INT32, ["batch_plus_one"]),
    ("block_table", TensorProto.INT32, ["batch", "max_pages"]),
    ("logits_indices", TensorProto.INT64, ["num_logits"]),
)
# Attributes that the op shares with GroupQueryAttention, with their neutral values.
_SHARED: Mapping[str, Any] = {"local_window_size": -1, "softcap": 0.0}
# Attributes of GroupQueryAttention that the paged form does not need at these values.
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "do_rotary": (0, 1),
    "rotary_interleaved": (0,),
    "sliding_window_cache": (0, 1),
    "smooth_softmax": (0, -1),
    "qk_output": (0,),
}
_QUERY, _KEY, _VALUE, _FIRST_UNKNOWN = 0, 1, 2, 9


@dataclass(frozen=True, slots=True)
class DecoderSizes:
    """Sizes that a graph does not contain; from its ``genai_config.json``.

    Attributes:
        context_length: Context length of the model, tokens.
        window: Tokens that a layer with a sliding window sees; None if the model has no such layers.
        windowed_layers: These layers; empty if the graph's converter did not know them.
    """

    head_size: int
    context_length: int
    end_tokens: frozenset[int]
    window: int | None = None
    windowed_layers: frozenset[int] = frozenset()


def lower(model: onnx.ModelProto, sizes: DecoderSizes) -> tuple[onnx.ModelProto, PagedGeometry]:
    """Lowers a graph. Weights are neither needed nor changed; the result refers to the same external data.

    Args:
        model: The original, loaded without its external data; not changed.

    Raises:
        ModelNotLowerable: The graph contains something without a paged form; names it.
    """
    lowered = onnx.ModelProto()
    lowered.CopyFrom(model)
    graph = lowered.graph
    walk = GraphWalk(graph)
    attentions = [node for node in graph.node if node.op_type == "GroupQueryAttention"]
    if not attentions:
        raise ModelNotLowerable("the graph has no GroupQueryAttention node")
    vocabulary_size = _vocabulary_size(graph)

    tables = [rotary_tables(node, sizes.context_length, walk, graph) for node in attentions]
    replacements = {
        node.output[0]: _paged_attention(node, layer, tables[layer], sizes, walk)
        for layer, node in enumerate(attentions)
    }
    first = attributes(attentions[0])
    for node in replacements.values():
        heads = attributes(node)
        if any(heads[name] != first[name] for name in ("num_heads", "kv_num_heads")):
            raise ModelNotLowerable("the layers have different numbers of heads")
    geometry = PagedGeometry(
        layers=len(attentions),
        query_heads=first["num_heads"],
        kv_heads=first["kv_num_heads"],
        head_size=sizes.head_size,
        page_tokens=PAGE_TOKENS,
        vocabulary_size=vocabulary_size,
        max_context=min(_context_length(attentions, sizes), *(table.positions for table in tables)),
        end_tokens=sizes.end_tokens,
    )

    head, selected = _select_rows(walk)
    nodes = [helper.make_node("Unsqueeze", ["input_ids", _AXIS], [_TOKENS])]
    for node in graph.node:
        if node is head:
            nodes.append(selected)
        replaced = replacements.get(node.output[0], node)
        rename(replaced.input, "input_ids", _TOKENS)
        rename(replaced.output, "logits", _LOGITS)
        nodes.append(replaced)
    nodes.append(helper.make_node("Squeeze", [_LOGITS, _AXIS], ["logits"]))
    replace(graph.node, nodes)
    graph.initializer.append(helper.make_tensor(_AXIS, TensorProto.INT64, [1], [0]))
    drop_unused(graph, "logits")
    declare_step(graph, geometry)
    check_token_independence(graph, exempt=frozenset({_TOKENS, _ROWS, "logits"}))
    lowered.opset_import.append(helper.make_opsetid(OPS_DOMAIN, 1))
    return lowered, geometry


def _vocabulary_size(graph: onnx.GraphProto) -> int:
    for output in graph.output:
        if output.name == "logits":
            shape, kind = output.type.tensor_type.shape, output.type.tensor_type.elem_type
            if kind != TensorProto.FLOAT:
                raise ModelNotLowerable("the logits are not float32")
            if len(shape.dim) == 3 and shape.dim[2].dim_value > 0:
                return int(shape.dim[2].dim_value)
    raise ModelNotLowerable("the graph has no output logits [batch, tokens, vocabulary] of known vocabulary")


def _context_length(attentions: list[onnx.NodeProto], sizes: DecoderSizes) -> int:
    """Returns the context length for which the graph implements the configured sliding windows.

    The converter sets windows on the layers that it knows to have one. Where it knows a window but no layers, every
    layer sees all tokens, which is correct as long as the window holds them all.
    """
    if sizes.window is None:
        return sizes.context_length
    windows = enumerate(attributes(node).get("local_window_size", -1) for node in attentions)
    found = {layer: window for layer, window in windows if window != -1}
    if not found and not sizes.windowed_layers:
        return min(sizes.context_length, sizes.window)
    if found != dict.fromkeys(sizes.windowed_layers or found, sizes.window):
        layers = sorted(sizes.windowed_layers) or "some"
        raise ModelNotLowerable(
            f"by its configuration, layers {layers} see {sizes.window} tokens, the graph says {found}"
        )
    return sizes.context_length


def _paged_attention(
    node: onnx.NodeProto, layer: int, tables: RotaryTables, sizes: DecoderSizes, walk: GraphWalk
) -> onnx.NodeProto:
    found = attributes(node)
    for name, value in found.items():
        if name in ("num_heads", "kv_num_heads", "scale", *_SHARED):
            continue
        if name not in _NEUTRAL or value not in _NEUTRAL[name]:
            raise ModelNotLowerable(f"{node.name}: {name} = {value} has no paged form")
    shared = {name: found[name] for name, neutral in _SHARED.items() if found.get(name, neutral) != neutral}
    if any(value <= 0 for value in shared.values()):
        raise ModelNotLowerable(f"{node.name}: {shared} has no paged form")
    inputs = [*node.input, *[""] * (_FIRST_UNKNOWN - len(node.input))]
    for extra in filter(None, inputs[_FIRST_UNKNOWN:]):
        raise ModelNotLowerable(f"{node.name}: its input {extra} (positions, bias or sink) has no paged form")
    for present in filter(None, node.output[1:]):
        if walk.consumers(present):
            raise ModelNotLowerable(f"{node.name}: its output {present} is used inside the graph")
    if 2 * tables.pairs > sizes.head_size:
        raise ModelNotLowerable(f"{node.name}: the rotary table is wider than a head of {sizes.head_size}")
    return helper.make_node(
        "PagedAttention",
        [
            inputs[_QUERY], inputs[_KEY], inputs[_VALUE], f"pages.{layer}", tables.cosine, tables.sine,
            "positions", "slot_mapping", "cumulative_sequence_lengths", "block_table",
        ],
        [node.output[0]],
        name=node.name.replace("GroupQueryAttention", "PagedAttention"),
        domain=OPS_DOMAIN,
        num_heads=found["num_heads"],
        kv_num_heads=found["kv_num_heads"],
        page_tokens=PAGE_TOKENS,
        scale=found.get("scale") or sizes.head_size**-0.5,
        **shared,
    )  # fmt: skip


def _select_rows(walk: GraphWalk) -> tuple[onnx.NodeProto, onnx.NodeProto]:
    """Finds the start of the head and builds the node that selects the wanted rows before it.

    Returns:
        The head's first node, which now reads the selected rows, and the node that selects them.
    """
    name = "logits"
    while True:
        node = walk.producer(name)
        if node is None or node.op_type not in _HEAD_OPS:
            source = node.op_type if node else "outside"
            raise ModelNotLowerable(f"the head is not understood: {name} comes from {source}")
        rows = [index for index, source in enumerate(node.input) if source and not walk.is_constant(source)]
        if len(rows) != 1:
            raise ModelNotLowerable(f"the head is not understood: {node.name} combines {len(rows)} values")
        name = node.input[rows[0]]
        above = walk.producer(name)
        if above is not None and above.op_type in _NORMS:
            node.input[rows[0]] = _ROWS
            return node, helper.make_node("Gather", [name, "logits_indices"], [_ROWS], axis=1)


def declare_step(graph: onnx.GraphProto, geometry: PagedGeometry) -> None:
    """Declares the inputs and outputs of a paged graph."""
    inputs = [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["num_tokens"])]
    inputs += [helper.make_tensor_value_info(name, kind, list(shape)) for name, kind, shape in _STEP_INPUTS]
    inputs += [
        helper.make_tensor_value_info(f"pages.{layer}", TensorProto.INT8, ["pages", geometry.layer_page_bytes()])
        for layer in range(geometry.layers)
    ]
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["num_logits", geometry.vocabulary_size])
    replace(graph.input, inputs)
    replace(graph.output, [logits])
    replace(graph.value_info, [])
