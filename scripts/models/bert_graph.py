"""Builds a BERT encoder as an ONNX graph from its weights, in fp32 or in INT8 with one scale a token.

Built by hand rather than traced, because the point of the INT8 form is in how its nodes are put together:

- Weights are int8 with one scale an output column. They are multiplied as uint8 x int8 into int32, so a product does
  not depend on how many rows are multiplied beside it or on the number of threads: what a text's vector is never
  depends on the other texts of its batch.
- Activations get one scale a token (its largest magnitude), not one a tensor. One a tensor would let every text of a
  batch change every other's rounding.
- Weights may be kept to 7 bits (``weight_limit=63``). x86 processors without VNNI add two uint8 x int8 products in a
  saturating int16, which full-range weights overflow; kept to 7 bits, every processor computes the same integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

MICROSOFT = "com.microsoft"
OPSET = 20
QUANTIZED_ZERO = 128
QUANTIZED_LIMIT = 127.0


@dataclass(frozen=True, slots=True)
class BertShape:
    """What a BERT configuration says that the graph needs."""

    layers: int
    heads: int
    hidden: int
    max_tokens: int
    norm_epsilon: float


@dataclass(slots=True)
class GraphBuilder:
    """Collects nodes and constants; every method returns the name of the value it adds."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)

    def constant(self, name: str, value: NDArray[np.generic]) -> str:
        self.constants.setdefault(name, numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def add(self, operator: str, inputs: list[str], name: str, domain: str = "", **attributes: object) -> str:
        self.nodes.append(helper.make_node(operator, inputs, [name], name=name, domain=domain, **attributes))
        return name


@dataclass(frozen=True, slots=True)
class QuantizedRows:
    """Activations as uint8 around 128, and the float factor that takes each row back."""

    values: str
    scale: str


@dataclass(frozen=True, slots=True)
class Linear:
    """How ``x @ weight`` is computed.

    Attributes:
        weight_limit: Largest magnitude of an int8 weight, 63 or 127; None keeps fp32.
    """

    weight_limit: int | None

    def prepare(self, graph: GraphBuilder, rows: str, name: str) -> str | QuantizedRows:
        """Brings activations into the form that ``apply`` multiplies; shared by products with the same input."""
        if self.weight_limit is None:
            return rows
        magnitude = graph.add("Abs", [rows], f"{name}.abs")
        last = graph.constant("axis.last", np.array([-1], np.int64))
        peak = graph.add("ReduceMax", [magnitude, last], f"{name}.peak", keepdims=1)
        # A row of zeros must stay one: without a floor it would be divided by zero.
        floored = graph.add("Max", [peak, graph.constant("tiny", np.array(1e-12, np.float32))], f"{name}.floored")
        unit = graph.add("Div", [rows, floored], f"{name}.unit")
        values = graph.add(
            "QuantizeLinear",
            [
                unit,
                graph.constant("activation.scale", np.array(1 / QUANTIZED_LIMIT, np.float32)),
                graph.constant("activation.zero", np.array(QUANTIZED_ZERO, np.uint8)),
            ],
            f"{name}.quantized",
        )
        return QuantizedRows(values=values, scale=floored)

    def apply(self, graph: GraphBuilder, rows: str | QuantizedRows, weight: NDArray[np.float32], name: str) -> str:
        """Multiplies prepared rows by a weight of shape [in, out]."""
        if isinstance(rows, str):
            return graph.add("MatMul", [rows, graph.constant(f"{name}.weight", weight)], name)
        assert self.weight_limit is not None
        scale = np.maximum(np.abs(weight).max(axis=0), 1e-12) / self.weight_limit
        quantized = np.rint(weight / scale).astype(np.int8)
        product = graph.add(
            "MatMulIntegerToFloat",
            [
                rows.values,
                graph.constant(f"{name}.weight", quantized),
                graph.constant("activation.scale", np.array(1 / QUANTIZED_LIMIT, np.float32)),
                graph.constant(f"{name}.scale", scale.astype(np.float32)),
                graph.constant("activation.zero", np.array(QUANTIZED_ZERO, np.uint8)),
            ],
            f"{name}.product",
            domain=MICROSOFT,
        )
        return graph.add("Mul", [product, rows.scale], name)


def build_bert(weights: Mapping[str, NDArray[np.float32]], shape: BertShape, linear: Linear) -> onnx.ModelProto:
    """Builds the encoder.

    Inputs: ``input_ids`` int64 [batch, tokens] and ``attention_mask`` int32 [batch, tokens], 1 for tokens of the text
    and 0 for padding. Outputs: ``token_vectors`` float32 [batch, tokens, hidden], each of unit length, and
    ``sentence_vectors`` float32 [batch, hidden], the unit-length mean over the text's tokens.

    Args:
        weights: Tensors by their names in Hugging Face's BertModel.
        shape: The configuration.
        linear: How products with weights are computed.
    """
    graph = GraphBuilder()
    hidden = _embeddings(graph, weights, shape, linear)
    for layer in range(shape.layers):
        hidden = _layer(graph, weights, shape, linear, f"encoder.layer.{layer}", hidden)
    _outputs(graph, hidden)
    return helper.make_model(
        helper.make_graph(
            graph.nodes,
            "bert",
            [
                helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "tokens"]),
                helper.make_tensor_value_info("attention_mask", TensorProto.INT32, ["batch", "tokens"]),
            ],
            [
                helper.make_tensor_value_info("token_vectors", TensorProto.FLOAT, ["batch", "tokens", shape.hidden]),
                helper.make_tensor_value_info("sentence_vectors", TensorProto.FLOAT, ["batch", shape.hidden]),
            ],
            list(graph.constants.values()),
        ),
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)],
        producer_name="edge-rag",
        ir_version=10,
    )


def _embeddings(
    graph: GraphBuilder, weights: Mapping[str, NDArray[np.float32]], shape: BertShape, linear: Linear
) -> str:
    words = weights["embeddings.word_embeddings.weight"]
    if linear.weight_limit is None:
        word = graph.add("Gather", [graph.constant("words", words), "input_ids"], "word")
    else:
        scale = np.abs(words).max(axis=1, keepdims=True) / QUANTIZED_LIMIT
        quantized = np.rint(words / np.maximum(scale, 1e-12)).astype(np.int8)
        stored = graph.add("Gather", [graph.constant("words", quantized), "input_ids"], "word.stored")
        factor = graph.add(
            "Gather", [graph.constant("words.scale", scale.astype(np.float32)), "input_ids"], "word.scale"
        )
        word = graph.add("Mul", [graph.add("Cast", [stored], "word.float", to=TensorProto.FLOAT), factor], "word")
    # All texts are first segments, so that segment's vector belongs to every position.
    places = (
        weights["embeddings.position_embeddings.weight"][: shape.max_tokens]
        + weights["embeddings.token_type_embeddings.weight"][0]
    )
    first = graph.constant("zero", np.array([0], np.int64))
    tokens = graph.add("Shape", ["input_ids"], "tokens", start=1, end=2)
    place = graph.add("Slice", [graph.constant("places", places), first, tokens, first], "place")
    return _norm(graph, weights, shape, "embeddings.LayerNorm", graph.add("Add", [word, place], "embedded"))


def _layer(
    graph: GraphBuilder,
    weights: Mapping[str, NDArray[np.float32]],
    shape: BertShape,
    linear: Linear,
    name: str,
    hidden: str,
) -> str:
    def matrix(part: str) -> NDArray[np.float32]:
        return weights[f"{name}.{part}.weight"].T

    def bias(part: str) -> NDArray[np.float32]:
        return weights[f"{name}.{part}.bias"]

    parts = [f"attention.self.{part}" for part in ("query", "key", "value")]
    rows = linear.prepare(graph, hidden, f"{name}.input")
    queries, keys, values = (linear.apply(graph, rows, matrix(part), f"{name}.{part}") for part in parts)
    attended = graph.add(
        "MultiHeadAttention",
        [
            queries,
            keys,
            values,
            graph.constant(f"{name}.attention.bias", np.concatenate([bias(part) for part in parts])),
            "attention_mask",
        ],
        f"{name}.attended",
        domain=MICROSOFT,
        num_heads=shape.heads,
    )
    rows = linear.prepare(graph, attended, f"{name}.attended")
    mixed = linear.apply(graph, rows, matrix("attention.output.dense"), f"{name}.mixed")
    hidden = _skip_norm(graph, weights, shape, f"{name}.attention.output", mixed, hidden)
    rows = linear.prepare(graph, hidden, f"{name}.middle")
    widened = linear.apply(graph, rows, matrix("intermediate.dense"), f"{name}.widened")
    activated = graph.add(
        "BiasGelu",
        [widened, graph.constant(f"{name}.intermediate.bias", bias("intermediate.dense"))],
        f"{name}.activated",
        domain=MICROSOFT,
    )
    rows = linear.prepare(graph, activated, f"{name}.activated")
    narrowed = linear.apply(graph, rows, matrix("output.dense"), f"{name}.narrowed")
    return _skip_norm(graph, weights, shape, f"{name}.output", narrowed, hidden)


def _norm(
    graph: GraphBuilder, weights: Mapping[str, NDArray[np.float32]], shape: BertShape, name: str, value: str
) -> str:
    return graph.add(
        "LayerNormalization",
        [
            value,
            graph.constant(f"{name}.weight", weights[f"{name}.weight"]),
            graph.constant(f"{name}.bias", weights[f"{name}.bias"]),
        ],
        f"{name}.normed",
        axis=-1,
        epsilon=shape.norm_epsilon,
    )


def _skip_norm(
    graph: GraphBuilder,
    weights: Mapping[str, NDArray[np.float32]],
    shape: BertShape,
    name: str,
    value: str,
    residual: str,
) -> str:
    return graph.add(
        "SkipLayerNormalization",
        [
            value,
            residual,
            graph.constant(f"{name}.LayerNorm.weight", weights[f"{name}.LayerNorm.weight"]),
            graph.constant(f"{name}.LayerNorm.bias", weights[f"{name}.LayerNorm.bias"]),
            graph.constant(f"{name}.dense.bias", weights[f"{name}.dense.bias"]),
        ],
        f"{name}.normed",
        domain=MICROSOFT,
        epsilon=shape.norm_epsilon,
    )


def _outputs(graph: GraphBuilder, hidden: str) -> None:
    graph.add("LpNormalization", [hidden], "token_vectors", axis=-1, p=2)
    mask = graph.add("Cast", ["attention_mask"], "mask.float", to=TensorProto.FLOAT)
    row = graph.add("Unsqueeze", [mask, graph.constant("one", np.array([1], np.int64))], "mask.row")
    # The mean and the sum point the same way, and only the direction is kept.
    total = graph.add("MatMul", [row, hidden], "total")
    flat = graph.add("Squeeze", [total, graph.constant("one", np.array([1], np.int64))], "total.flat")
    graph.add("LpNormalization", [flat], "sentence_vectors", axis=-1, p=2)
