"""Builds a BERT encoder as an ONNX graph over texts that lie end to end, in fp32 or with quantized weights.

Built by hand rather than traced, because the point is in how its nodes are put together:

- There is no padding. The tokens of all texts of a batch are rows of one matrix, and attention is told where each text
  begins (``ai.edge_rag::SequenceAttention``).
- Products with quantized weights are ``ai.edge_rag::QuantizedMatMul``: activations get one scale a token and block, and
  bias and GELU are applied before a result is written. What a text's vector is never depends on the other texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from edge_rag.runtime.weight_packing import PackedMatrix, pack, quantize

OWN = "ai.edge_rag"
OPSET = 20
LENGTHS = "cumulative_sequence_lengths"

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class BertShape:
    """What a BERT configuration says that the graph needs."""

    layers: int
    heads: int
    hidden: int
    max_tokens: int
    norm_epsilon: float

    @staticmethod
    def of(config: Mapping[str, object], max_tokens: int) -> BertShape:
        """Reads Hugging Face's configuration.

        Raises:
            ValueError: It is no BERT with GELU and absolute positions.
        """
        kind = tuple(config.get(key, "absolute") for key in ("model_type", "hidden_act", "position_embedding_type"))
        if kind != ("bert", "gelu", "absolute"):
            raise ValueError(f"not a BERT with GELU and absolute positions: {kind}")
        return BertShape(
            layers=int(str(config["num_hidden_layers"])),
            heads=int(str(config["num_attention_heads"])),
            hidden=int(str(config["hidden_size"])),
            max_tokens=min(max_tokens, int(str(config["max_position_embeddings"]))),
            norm_epsilon=float(str(config["layer_norm_eps"])),
        )


@dataclass(frozen=True, slots=True)
class Precision:
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

    precision: Precision | None
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)

    def constant(self, name: str, value: NDArray[np.generic]) -> str:
        self.constants.setdefault(name, numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def add(self, operator: str, inputs: list[str], name: str, domain: str = "", **attributes: object) -> str:
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
        return self.add("QuantizedMatMul", inputs, name, OWN, gelu=int(gelu), **_attributes(packed))

    def rows_of(self, indices: str, table: Floats, name: str) -> str:
        """Looks up rows of a table [rows, columns]."""
        if self.precision is None:
            return self.add("Gather", [self.constant(f"{name}.table", table), indices], name)
        packed = Precision(8, None).packed(np.ascontiguousarray(table.T))
        return self.add("QuantizedRows", [indices, *self._stored(packed, name)], name, OWN, **_attributes(packed))

    def norm(self, value: str, skip: str, weights: Mapping[str, Floats], part: str, shape: BertShape) -> str:
        """Adds two values and normalizes the rows of the sum."""
        scale, bias = (self.constant(f"{part}.{kind}", weights[f"{part}.{kind}"]) for kind in ("weight", "bias"))
        return self.add(
            "SkipLayerNormalization", [value, scale, bias, skip], f"{part}.normed", OWN, epsilon=shape.norm_epsilon
        )

    def _stored(self, packed: PackedMatrix, name: str) -> list[str]:
        return [self.constant(f"{name}.weight", packed.weights), self.constant(f"{name}.scales", packed.scales)]


def build_encoder(weights: Mapping[str, Floats], shape: BertShape, precision: Precision | None) -> onnx.ModelProto:
    """Builds a text encoder with mean pooling.

    Inputs: ``input_ids`` and ``positions`` int64 [tokens], the tokens of all texts and each one's place in its text;
    ``cumulative_sequence_lengths`` int32 [texts + 1]: text s has tokens [at s, at s + 1). Outputs: ``token_vectors``
    float32 [tokens, hidden] and ``sentence_vectors`` float32 [texts, hidden], the means, all of unit length.

    Args:
        weights: Tensors by their names in Hugging Face's BertModel.
        shape: The configuration.
        precision: How weights are kept; None keeps fp32.
    """
    graph = GraphBuilder(precision)
    # All texts are first segments, so that segment's vector belongs to every position.
    places = (
        weights["embeddings.position_embeddings.weight"][: shape.max_tokens]
        + weights["embeddings.token_type_embeddings.weight"][0]
    )
    place = graph.add("Gather", [graph.constant("places", places), "positions"], "place")
    hidden = _hidden(graph, weights, shape, place)
    graph.add("LpNormalization", [hidden], "token_vectors", axis=-1, p=2)
    # The mean and the sum point the same way, and only the direction is kept.
    total = graph.add("SequenceSum", [hidden, LENGTHS], "total", OWN)
    graph.add("LpNormalization", [total], "sentence_vectors", axis=-1, p=2)
    outputs = {"token_vectors": ["tokens", shape.hidden], "sentence_vectors": ["texts", shape.hidden]}
    return _model(graph, ["input_ids", "positions"], outputs)


def build_cross_encoder(
    weights: Mapping[str, Floats], shape: BertShape, precision: Precision | None
) -> onnx.ModelProto:
    """Builds a cross-encoder with one score a pair.

    Inputs: those of ``build_encoder``, where a text is a question and a passage; ``token_type_ids`` int64 [tokens], 0
    for the question's tokens and 1 for the passage's. Output: ``scores`` float32 [texts].

    Args:
        weights: Tensors by their names in Hugging Face's BertForSequenceClassification, ``bert.`` left out.
        shape: The configuration.
        precision: How weights are kept; None keeps fp32.
    """
    graph = GraphBuilder(precision)
    places = graph.constant("places", weights["embeddings.position_embeddings.weight"][: shape.max_tokens])
    types = graph.constant("types", weights["embeddings.token_type_embeddings.weight"])
    place = graph.add("Gather", [places, "positions"], "place.own")
    segment = graph.add("Gather", [types, "token_type_ids"], "segment")
    hidden = _hidden(graph, weights, shape, graph.add("Add", [place, segment], "place"))
    ends = [graph.constant(name, np.array([value], np.int64)) for name, value in (("start", 0), ("end", -1))]
    firsts = graph.add("Slice", [LENGTHS, *ends], "firsts")
    first = graph.add("Gather", [hidden, firsts], "first")
    dense = graph.linear(first, weights["pooler.dense.weight"].T, weights["pooler.dense.bias"], "pooled.sum")
    pooled = graph.add("Tanh", [dense], "pooled")
    # A product row by row: what a matrix product makes of a row may depend on how many there are.
    products = graph.add("Mul", [pooled, graph.constant("classifier.weight", weights["classifier.weight"])], "products")
    axis = graph.constant("last", np.array([-1], np.int64))
    total = graph.add("ReduceSum", [products, axis], "total", keepdims=0)
    graph.add("Add", [total, graph.constant("classifier.bias", weights["classifier.bias"])], "scores")
    return _model(graph, ["input_ids", "positions", "token_type_ids"], {"scores": ["texts"]})


def _hidden(graph: GraphBuilder, weights: Mapping[str, Floats], shape: BertShape, place: str) -> str:
    word = graph.rows_of("input_ids", weights["embeddings.word_embeddings.weight"], "word")
    hidden = graph.norm(word, place, weights, "embeddings.LayerNorm", shape)
    for layer in range(shape.layers):
        hidden = _layer(graph, weights, shape, f"encoder.layer.{layer}", hidden)
    return hidden


def _layer(graph: GraphBuilder, weights: Mapping[str, Floats], shape: BertShape, name: str, hidden: str) -> str:
    def dense(part: str) -> tuple[Floats, Floats]:
        return weights[f"{name}.{part}.weight"].T, weights[f"{name}.{part}.bias"]

    parts = [dense(f"attention.self.{part}") for part in ("query", "key", "value")]
    qkv = graph.linear(
        hidden,
        np.concatenate([weight for weight, _ in parts], axis=1),
        np.concatenate([bias for _, bias in parts]),
        f"{name}.qkv",
    )
    attended = graph.add(
        "SequenceAttention",
        [qkv, LENGTHS],
        f"{name}.attended",
        OWN,
        num_heads=shape.heads,
        scale=(shape.hidden / shape.heads) ** -0.5,
    )
    mixed = graph.linear(attended, *dense("attention.output.dense"), f"{name}.mixed")
    hidden = graph.norm(mixed, hidden, weights, f"{name}.attention.output.LayerNorm", shape)
    widened = graph.linear(hidden, *dense("intermediate.dense"), f"{name}.widened", gelu=True)
    narrowed = graph.linear(widened, *dense("output.dense"), f"{name}.narrowed")
    return graph.norm(narrowed, hidden, weights, f"{name}.output.LayerNorm", shape)


def _attributes(packed: PackedMatrix) -> dict[str, int]:
    form = packed.form
    return {"K": form.rows, "N": form.columns, "bits": form.bits, "block_size": form.block_size}


def _model(graph: GraphBuilder, tokens: list[str], outputs: Mapping[str, list[str | int]]) -> onnx.ModelProto:
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
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(OWN, 1)],
        producer_name="edge-rag",
        ir_version=10,
    )
