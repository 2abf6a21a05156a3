"""Builds, reads and edits ONNX graphs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


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


class GraphBuilder:
    """Collects the nodes and constants of a graph; methods return the name of the value they add."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []

    def add(self, operator: str, inputs: Sequence[str], name: str, domain: str | None = None, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(operator, inputs, [name], name=name, domain=domain, **attributes))
        return name

    def constant(self, name: str, value: NDArray[Any]) -> str:
        """Adds an array, unless there is one of that name."""
        if name not in self.constants:
            self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(value).reshape(value.shape), name)
        return name

    def input(self, name: str, element: int, shape: Sequence[str | int]) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, element, shape))
        return name

    def output(self, name: str, element: int, shape: Sequence[str | int]) -> None:
        self.outputs.append(helper.make_tensor_value_info(name, element, shape))

    def model(self, name: str, opsets: Mapping[str, int], ir_version: int) -> onnx.ModelProto:
        """Returns the graph as a model.

        Args:
            opsets: Version of each domain.
        """
        graph = helper.make_graph(self.nodes, name, self.inputs, self.outputs, list(self.constants.values()))
        imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
        return helper.make_model(graph, opset_imports=imports, producer_name="edge-rag", ir_version=ir_version)
