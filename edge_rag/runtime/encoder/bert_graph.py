"""Builds BERT and RoBERTa encoders as ONNX graphs over packed texts.

The graphs are built by hand rather than traced, because of two properties:

- There is no padding. The tokens of all texts of a batch are rows of one matrix, and attention receives the start of
  each text (``ai.edge_rag::SequenceAttention``).
- Products with quantized weights are ``ai.edge_rag::QuantizedMatMul``: activations get one scale for each token and
  block, and bias and GELU are applied before a result is written. A text's vector never depends on the other texts.

``bert_network`` reads the network of such a graph back by the names of its nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto

from edge_rag.runtime.encoder.tokenizer import LENGTHS
from edge_rag.runtime.lowering.onnx_graph import OPS_DOMAIN, GraphBuilder
from edge_rag.runtime.lowering.weight_packing import (
    PANEL_COLUMNS,
    PackedMatrix,
    pack,
    quantize,
    quantize_to_lowest,
)

OPSET = 20

Floats = NDArray[np.float32]

HEAD_MULTIPLE: Final = 16
"""Elements of a head are a multiple of this, as the operators demand."""

BERT, MODERN_BERT = "bert", "modernbert"
"""Names of graphs, by the network."""

_ROWS_AT_ONCE = 1024 * PANEL_COLUMNS
"""Rows of a table that are quantized at a time: whole panels, which bounds the memory for intermediate results."""


@dataclass(frozen=True, slots=True)
class WeightPrecision:
    """Quantization of a weight.

    Attributes:
        block_size: Consecutive elements of a column that share a scale; None: all of them.
        to_lowest: Whether ``quantize_to_lowest`` is used and scales are float16: both keep weights of GGML's Q4_0 as
            they are.
        wide_block: Products are of the weights rounded again, to 8 bits with a scale for every so many of a column:
            faster, and the file stays small; 0: of the weights as they are.
    """

    bits: int
    block_size: int | None
    to_lowest: bool = False
    wide_block: int = 0

    def packed(self, weight: Floats) -> PackedMatrix:
        """Quantizes a weight [in, out]."""
        whole = -(-len(weight) // 8) * 8
        block = self.block_size or whole
        if not self.to_lowest:
            return pack(quantize(weight, self.bits, block))
        matrix = quantize_to_lowest(weight, self.bits, block)
        return pack(replace(matrix, scales=matrix.scales.astype(np.float16)))

    def packed_rows(self, table: Floats) -> PackedMatrix:
        """Quantizes a table [rows, columns] whose rows are looked up, some rows at a time."""
        parts = [
            self.packed(np.ascontiguousarray(table[first : first + _ROWS_AT_ONCE].T))
            for first in range(0, len(table), _ROWS_AT_ONCE)
        ]
        form = replace(parts[0].form, columns=len(table))
        weights, scales = (
            np.concatenate(pieces) for pieces in zip(*((p.weights, p.scales) for p in parts), strict=True)
        )
        return PackedMatrix(form, weights, scales)


BYTE_ROWS: Final = WeightPrecision(8, None)
"""Of word embeddings, unless a model says otherwise: a byte an element, a scale a row."""


class EncoderBuilder(GraphBuilder):
    """A builder with the layers of an encoder.

    Args:
        precision: Quantization of products' weights; None keeps all of the graph in fp32.
        rows: Quantization of tables whose rows are looked up.
    """

    def __init__(self, precision: WeightPrecision | None, rows: WeightPrecision = BYTE_ROWS) -> None:
        super().__init__()
        self.precision = precision
        self.rows = rows

    def linear(self, rows: str, weight: Floats, bias: Floats, name: str, gelu: bool = False) -> str:
        """Multiplies rows by a weight [in, out] and adds the bias."""
        offset = self.constant(f"{name}.bias", bias)
        if self.precision is None:
            product = self.add("MatMul", [rows, self.constant(f"{name}.weight", weight)], f"{name}.product")
            total = self.add("Add", [product, offset], f"{name}.sum" if gelu else name)
            return self.add("Gelu", [total], name) if gelu else total
        packed = self.precision.packed(weight)
        inputs = [rows, *self._stored(packed, name), "", offset]
        attributes = _attributes(packed) | {"gelu": int(gelu)}
        if self.precision.wide_block:
            attributes["wide_block"] = self.precision.wide_block
        return self.add("QuantizedMatMul", inputs, name, OPS_DOMAIN, **attributes)

    def rows_of(self, indices: str, table: Floats, name: str) -> str:
        """Looks up rows of a table [rows, columns]."""
        if self.precision is None:
            return self.add("Gather", [self.constant(f"{name}.table", table), indices], name)
        packed = self.rows.packed_rows(table)
        inputs = [indices, *self._stored(packed, name)]
        return self.add("QuantizedRows", inputs, name, OPS_DOMAIN, **_attributes(packed))

    def norm(self, value: str, skip: str, weights: Mapping[str, Floats], part: str, epsilon: float) -> str:
        scale, bias = (self.constant(f"{part}.{kind}", weights[f"{part}.{kind}"]) for kind in ("weight", "bias"))
        return self.add(
            "SkipLayerNormalization", [value, scale, bias, skip], f"{part}.normed", OPS_DOMAIN, epsilon=epsilon
        )

    def _stored(self, packed: PackedMatrix, name: str) -> list[str]:
        return [self.constant(f"{name}.weight", packed.weights), self.constant(f"{name}.scales", packed.scales)]


def encoder_model(
    graph: EncoderBuilder, tokens: list[str], outputs: Mapping[str, list[str | int]], name: str = BERT
) -> onnx.ModelProto:
    """Builds a model from the nodes.

    Args:
        tokens: int64 inputs [tokens], beside the lengths of the texts.
        outputs: Outputs with their dimensions, float32.
    """
    for each in tokens:
        graph.input(each, TensorProto.INT64, ["tokens"])
    graph.input(LENGTHS, TensorProto.INT32, ["texts + 1"])
    for output, dims in outputs.items():
        graph.output(output, TensorProto.FLOAT, dims)
    return graph.model(name, {"": OPSET, OPS_DOMAIN: 1}, ir_version=10)


def _attributes(packed: PackedMatrix) -> dict[str, int]:
    form = packed.form
    return {"K": form.rows, "N": form.columns, "bits": form.bits, "block_size": form.block_size}


_BERT, _ROBERTA = frozenset({BERT}), frozenset({"roberta", "xlm-roberta"})


class Pooling(Enum):
    """How a text's vector is computed from its tokens' vectors."""

    MEAN = "mean"
    CLS = "cls"


@dataclass(frozen=True, slots=True)
class BertShape:
    """The parameters of a configuration that the graph needs.

    Attributes:
        hidden: Elements of a token's vector.
        max_tokens: Most tokens of a text, special tokens included.
        norm_epsilon: Added to a variance before its root is taken.
        first_position: Row of the position table for a text's first token.
    """

    layers: int
    heads: int
    hidden: int
    max_tokens: int
    norm_epsilon: float
    first_position: int = 0

    @staticmethod
    def of(config: Mapping[str, object], max_tokens: int) -> BertShape:
        """Reads Hugging Face's configuration.

        Raises:
            ValueError: It is not a BERT or RoBERTa encoder with GELU and absolute positions; says what it is.
        """
        kind = config.get("model_type")
        for key, wanted in (("hidden_act", "gelu"), ("position_embedding_type", "absolute")):
            if config.get(key, wanted) != wanted:
                raise ValueError(f"{key} is {config[key]!r}, only {wanted!r} is carried over")
        for key in ("is_decoder", "add_cross_attention"):
            if config.get(key, False) is not False:
                raise ValueError(f"{key} is set; only encoders are carried over")
        if kind not in _BERT | _ROBERTA:
            raise ValueError(f"model_type is {kind!r}, only {', '.join(sorted(_BERT | _ROBERTA))} are carried over")
        # RoBERTa numbers positions from one after the padding's.
        first = _size(config, "pad_token_id", least=0) + 1 if kind in _ROBERTA else 0
        epsilon = config.get("layer_norm_eps", 1e-12)
        if not isinstance(epsilon, float) or not 0 < epsilon < 1:
            raise ValueError(f"layer_norm_eps is {epsilon!r}, not a small number")
        shape = BertShape(
            layers=_size(config, "num_hidden_layers"),
            heads=_size(config, "num_attention_heads"),
            hidden=_size(config, "hidden_size"),
            max_tokens=min(max_tokens, _size(config, "max_position_embeddings") - first),
            norm_epsilon=epsilon,
            first_position=first,
        )
        if shape.hidden % (shape.heads * HEAD_MULTIPLE) or shape.max_tokens < 1:
            raise ValueError(
                f"{shape.heads} heads in {shape.hidden} elements, {shape.max_tokens} tokens: there must be tokens, and "
                f"a head must have a multiple of {HEAD_MULTIPLE} elements"
            )
        return shape


def build_encoder(
    weights: Mapping[str, Floats],
    shape: BertShape,
    precision: WeightPrecision | None,
    pooling: Pooling = Pooling.MEAN,
    rows: WeightPrecision = BYTE_ROWS,
) -> onnx.ModelProto:
    """Builds a text encoder.

    Inputs: ``input_ids`` and ``positions`` int64 [tokens], the tokens of all texts and the position of each in its
    text; ``cumulative_sequence_lengths`` int32 [texts + 1]: text s has tokens [at s, at s + 1). Outputs:
    ``token_vectors`` float32 [tokens, hidden] and ``sentence_vectors`` float32 [texts, hidden], pooled, all of unit
    length.
    """
    graph = EncoderBuilder(precision, rows)
    hidden = _hidden(graph, weights, shape, _one_segment(graph, weights, shape))
    return embedder_model(graph, hidden, shape.hidden, pooling)


def embedder_model(
    graph: EncoderBuilder, hidden: str, width: int, pooling: Pooling, name: str = BERT
) -> onnx.ModelProto:
    """Builds a model that gives unit vectors of tokens and texts, of the last layer's vectors [tokens, width]."""
    graph.add("LpNormalization", [hidden], "token_vectors", axis=-1, p=2)
    if pooling is Pooling.MEAN:
        # Mean and sum have the same direction, and the vector is normalized.
        pooled = graph.add("SequenceSum", [hidden, LENGTHS], "total", OPS_DOMAIN)
    else:
        pooled = _first_tokens(graph, hidden)
    graph.add("LpNormalization", [pooled], "sentence_vectors", axis=-1, p=2)
    outputs: dict[str, list[str | int]] = {"token_vectors": ["tokens", width], "sentence_vectors": ["texts", width]}
    return encoder_model(graph, ["input_ids", "positions"], outputs, name)


def build_cross_encoder(
    weights: Mapping[str, Floats],
    shape: BertShape,
    precision: WeightPrecision | None,
    rows: WeightPrecision = BYTE_ROWS,
) -> onnx.ModelProto:
    """Builds a cross-encoder: one score for each pair.

    Inputs: those of ``build_encoder``, where a text is a question and a passage; for models with token types also
    ``token_type_ids`` int64 [tokens], 0 for the question's tokens and 1 for the passage's. Output: ``scores`` float32
    [texts].

    Args:
        weights: Tensors by their names in Hugging Face's BertForSequenceClassification without ``bert.``, or in
            RobertaForSequenceClassification without ``roberta.``.
    """
    graph = EncoderBuilder(precision, rows)
    inputs = ["input_ids", "positions"]
    if len(weights["embeddings.token_type_embeddings.weight"]) == 1:
        place = _one_segment(graph, weights, shape)
    else:
        inputs.append("token_type_ids")
        places = graph.constant("places", _positions(weights, shape))
        types = graph.constant("types", weights["embeddings.token_type_embeddings.weight"])
        own = graph.add("Gather", [places, "positions"], "place.own")
        place = graph.add("Add", [own, graph.add("Gather", [types, "token_type_ids"], "segment")], "place")
    first = _first_tokens(graph, _hidden(graph, weights, shape, place))
    roberta = "classifier.dense.weight" in weights
    dense, last = ("classifier.dense", "classifier.out_proj") if roberta else ("pooler.dense", "classifier")
    mixed = graph.linear(first, weights[f"{dense}.weight"].T, weights[f"{dense}.bias"], "pooled.sum")
    pooled = graph.add("Tanh", [mixed], "pooled")
    # Row by row: the result of a matrix product for a row may depend on the number of rows.
    products = graph.add("Mul", [pooled, graph.constant("classifier.weight", weights[f"{last}.weight"])], "products")
    axis = graph.constant("last", np.array([-1], np.int64))
    total = graph.add("ReduceSum", [products, axis], "total", keepdims=0)
    graph.add("Add", [total, graph.constant("classifier.bias", weights[f"{last}.bias"])], "scores")
    return encoder_model(graph, inputs, {"scores": ["texts"]})


def _positions(weights: Mapping[str, Floats], shape: BertShape) -> Floats:
    table = weights["embeddings.position_embeddings.weight"]
    return table[shape.first_position : shape.first_position + shape.max_tokens]


def _one_segment(graph: EncoderBuilder, weights: Mapping[str, Floats], shape: BertShape) -> str:
    """Adds position embeddings; where there is only one token type, its vector is added to the table."""
    places = _positions(weights, shape) + weights["embeddings.token_type_embeddings.weight"][0]
    return graph.add("Gather", [graph.constant("places", places), "positions"], "place")


def _first_tokens(graph: EncoderBuilder, hidden: str) -> str:
    ends = [graph.constant(name, np.array([value], np.int64)) for name, value in (("start", 0), ("end", -1))]
    return graph.add("Gather", [hidden, graph.add("Slice", [LENGTHS, *ends], "firsts")], "first")


def _hidden(graph: EncoderBuilder, weights: Mapping[str, Floats], shape: BertShape, place: str) -> str:
    word = graph.rows_of("input_ids", weights["embeddings.word_embeddings.weight"], "word")
    hidden = graph.norm(word, place, weights, "embeddings.LayerNorm", shape.norm_epsilon)
    for layer in range(shape.layers):
        hidden = _layer(graph, weights, shape, f"encoder.layer.{layer}", hidden)
    return hidden


def _layer(graph: EncoderBuilder, weights: Mapping[str, Floats], shape: BertShape, name: str, hidden: str) -> str:
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
        OPS_DOMAIN,
        num_heads=shape.heads,
        scale=(shape.hidden / shape.heads) ** -0.5,
    )
    mixed = graph.linear(attended, *dense("attention.output.dense"), f"{name}.mixed")
    hidden = graph.norm(mixed, hidden, weights, f"{name}.attention.output.LayerNorm", shape.norm_epsilon)
    widened = graph.linear(hidden, *dense("intermediate.dense"), f"{name}.widened", gelu=True)
    narrowed = graph.linear(widened, *dense("output.dense"), f"{name}.narrowed")
    return graph.norm(narrowed, hidden, weights, f"{name}.output.LayerNorm", shape.norm_epsilon)


def _size(config: Mapping[str, object], key: str, least: int = 1) -> int:
    value = config.get(key)
    if type(value) is not int or not least <= value < 1 << 20:
        raise ValueError(f"{key} is {value!r}, not a size")
    return value
