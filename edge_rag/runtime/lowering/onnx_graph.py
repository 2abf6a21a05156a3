"""Reads and edits ONNX graphs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import onnx
from onnx import helper, numpy_helper

from edge_rag.errors import ModelNotLowerable


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


class GraphWalk:
    """Producers and consumers of each value of a graph, at the time of construction."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._producers = {name: node for node in graph.node for name in node.output if name}
        self._shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
        self._consumers: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            for name in node.input:
                self._consumers.setdefault(name, []).append(node)

    def producer(self, name: str) -> onnx.NodeProto | None:
        """Returns the node that makes a value; None for inputs and initializers."""
        return self._producers.get(name)

    def consumers(self, name: str) -> list[onnx.NodeProto]:
        return self._consumers.get(name, [])

    def is_constant(self, name: str) -> bool:
        if name in self._shapes:
            return True
        node = self._producers.get(name)
        return node is not None and all(self.is_constant(source) for source in node.input if source)

    def constant_integers(self, name: str) -> list[int]:
        node = self._producers.get(name)
        if node is None or node.op_type != "Constant" or "value" not in attributes(node):
            return []
        return [int(element) for element in numpy_helper.to_array(attributes(node)["value"]).reshape(-1)]

    def initializer_shape(self, name: str, user: str) -> tuple[int, ...]:
        """Returns the shape of a stored two-dimensional table.

        Raises:
            ModelNotLowerable: The value is computed; names the node that reads it.
        """
        shape = self._shapes.get(name)
        if shape is None or len(shape) != 2:
            raise ModelNotLowerable(f"{user}: {name or 'a missing input'} is not a stored table")
        return shape


OPS_DOMAIN = "ai.edge_rag"
"""Domain of the operators of ``edge_rag/ops``."""


def rename(names: Any, old: str, new: str) -> None:
    for index, name in enumerate(names):
        if name == old:
            names[index] = new


def replace(field: Any, values: Iterable[Any]) -> None:
    kept = list(values)
    del field[:]
    field.extend(kept)


def drop_unused(graph: onnx.GraphProto, output: str) -> None:
    """Removes the nodes and initializers that a value does not depend on."""
    wanted, kept = {output}, []
    for node in reversed(graph.node):
        if wanted.intersection(node.output):
            kept.append(node)
            wanted.update(node.input)
    replace(graph.node, kept[::-1])
    replace(graph.initializer, [tensor for tensor in graph.initializer if tensor.name in wanted])
