"""Reads and edits ONNX graphs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import onnx
from onnx import helper


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
