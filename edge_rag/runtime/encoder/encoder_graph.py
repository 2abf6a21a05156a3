"""Putting an encoder's ONNX graph together node by node, in fp32 or with quantized weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from edge_rag.runtime.encoder.batching import LENGTHS
from edge_rag.runtime.lowering.graph_edit import OPS_DOMAIN
from edge_rag.runtime.lowering.weight_packing import PackedMatrix, pack, quantize

OPSET = 20

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class WeightPrecision:
    """How a weight is kept.

    Attributes:
        bits: 4 or 8.
        block_size: Consecutive elements of a column that share a scale; None: all of them.
    """

    bits: int
    block_size: int | None

    def packed(self, weight: Floats) -> PackedMatrix:
        """Quantizes a weight [in, out]."""
        whole = -(-len(weight) // 8) * 8
        return pack(quantize(weight, self.bits, self.block_size or whole))


@dataclass(slots=True)
class GraphBuilder:
    """Collects nodes and constants; every method returns the name of the value it adds."""

    precision: WeightPrecision | None
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)

    def constant(self, name: str, value: NDArray[Any]) -> str:
        """Adds an array."""
        self.constants.setdefault(name, numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def add(self, operator: str, inputs: list[str], name: str, domain: str = "", **attributes: Any) -> str:
        """Adds a node with one output."""
        self.nodes.append(helper.make_node(operator, inputs, [name], name=name, domain=domain, **attributes))
        return name

    def linear(self, rows: str, weight: Floats, bias: Floats, name: str, gelu: bool = False) -> str:
        """Multiplies rows by a weight [in, out] and adds the bias."""
        offset = self.constant(f"{name}.bias", bias)
        if self.precision is None:
            product = self.add("MatMul", [rows, self.constant(f"{name}.weight", weight)], f"{name}.product")
            total = self.add("Add", [product, offset], f"{name}.sum" if gelu else name)
            return self.add("Gelu", [total], name) if gelu else total
        packed = self.precision.packed(weight)
        inputs = [rows, *self._stored(packed, name), "", offset]
        return self.add("QuantizedMatMul", inputs, name, OPS_DOMAIN, gelu=int(gelu), **_attributes(packed))

    def rows_of(self, indices: str, table: Floats, name: str) -> str:
        """Looks up rows of a table [rows, columns]."""
        if self.precision is None:
            return self.add("Gather", [self.constant(f"{name}.table", table), indices], name)
        packed = WeightPrecision(8, None).packed(np.ascontiguousarray(table.T))
        inputs = [indices, *self._stored(packed, name)]
        return self.add("QuantizedRows", inputs, name, OPS_DOMAIN, **_attributes(packed))

    def norm(self, value: str, skip: str, weights: Mapping[str, Floats], part: str, epsilon: float) -> str:
        """Adds two values and normalizes the rows of the sum."""
        scale, bias = (self.constant(f"{part}.{kind}", weights[f"{part}.{kind}"]) for kind in ("weight", "bias"))
        return self.add(
            "SkipLayerNormalization", [value, scale, bias, skip], f"{part}.normed", OPS_DOMAIN, epsilon=epsilon
        )

    def _stored(self, packed: PackedMatrix, name: str) -> list[str]:
        return [self.constant(f"{name}.weight", packed.weights), self.constant(f"{name}.scales", packed.scales)]


def encoder_model(graph: GraphBuilder, tokens: list[str], outputs: Mapping[str, list[str | int]]) -> onnx.ModelProto:
    """Makes a model of the nodes.

    Args:
        graph: The nodes.
        tokens: Inputs that have an int64 for every token, beside the lengths of the texts.
        outputs: Outputs with their dimensions, float32.
    """
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["tokens"]) for name in tokens]
    lengths = helper.make_tensor_value_info(LENGTHS, TensorProto.INT32, ["texts + 1"])
    return helper.make_model(
        helper.make_graph(
            graph.nodes,
            "bert",
            [*inputs, lengths],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in outputs.items()],
            list(graph.constants.values()),
        ),
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(OPS_DOMAIN, 1)],
        producer_name="edge-rag",
        ir_version=10,
    )


def _attributes(packed: PackedMatrix) -> dict[str, int]:
    form = packed.form
    return {"K": form.rows, "N": form.columns, "bits": form.bits, "block_size": form.block_size}
