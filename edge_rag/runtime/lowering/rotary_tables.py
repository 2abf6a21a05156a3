"""Finds the rotary tables of an attention node, or adds neutral ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edge_rag.errors import ModelNotLowerable
from edge_rag.runtime.lowering.onnx_graph import GraphWalk, attributes

_COS, _SIN = 7, 8
_STILL_COS, _STILL_SIN = "edge_rag.still.cos", "edge_rag.still.sin"


@dataclass(frozen=True, slots=True)
class RotaryTables:
    """The rotary tables of a node's queries and keys.

    Attributes:
        cosine: Name of an initializer, float32 [positions, pairs].
        sine: Name of an initializer of the same shape.
        positions: Positions in the tables.
        pairs: Pairs of elements of a head that are rotated.
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

    Args:
        node: A ``GroupQueryAttention`` node.
        context_length: Context length of the model.
        walk: The graph's edges.
        graph: The graph; may get initializers.

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
