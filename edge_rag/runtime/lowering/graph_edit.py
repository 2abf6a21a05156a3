"""Changing an ONNX graph in place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import onnx

OPS_DOMAIN = "ai.edge_rag"
"""The domain of the operators of ``edge_rag/ops``."""


def rename(names: Any, old: str, new: str) -> None:
    """Replaces a value's name in a node's inputs or outputs."""
    for index, name in enumerate(names):
        if name == old:
            names[index] = new


def replace(field: Any, values: Iterable[Any]) -> None:
    """Replaces all elements of a repeated field."""
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
