"""Reads the network of a graph of ``bert_graph`` back, so that other graphs of the same network can be built.

Nodes are found by their names; weights may be fp32 or packed in 4 or 8 bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from edge_rag.errors import ModelNotLowerable
from edge_rag.runtime.encoder.bert_graph import MODERN_BERT, Floats, Pooling
from edge_rag.runtime.lowering.onnx_graph import attributes
from edge_rag.runtime.lowering.weight_packing import BlockFormat, PackedMatrix, QuantizedMatrix, dequantize, unpack


@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """A product with a weight [in, out], and its bias [out]."""

    weight: Floats
    bias: Floats

    def columns(self, part: slice, factor: float = 1.0) -> Linear:
        return Linear(self.weight[:, part] * np.float32(factor), self.bias[part] * np.float32(factor))


@dataclass(frozen=True, slots=True, eq=False)
class Norm:
    """A layer normalization over the rows: scale [hidden], bias [hidden], and what is added to the variance."""

    scale: Floats
    bias: Floats
    epsilon: float


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """One layer.

    Attributes:
        attention_norm: Normalization after attention.
        intermediate: Projection before GELU.
        output: Projection after GELU.
    """

    query: Linear
    key: Linear
    value: Linear
    attention_output: Linear
    attention_norm: Norm
    intermediate: Linear
    output: Linear
    output_norm: Norm


@dataclass(frozen=True, slots=True, eq=False)
class TokenTables:
    """Embedding tables: token ids to the vectors that the first layer reads, before normalization.

    Attributes:
        words: A row for every token id: float32 [vocabulary, hidden], or uint8 with ``word_scales``.
        word_scales: float32 [vocabulary, blocks], one for each of equal parts of a row; the values of a part are
            (stored - ``zero_point``) * scale. None: rows are float32.
        zero_point: The stored value of a 0.
        positions: float32 [positions, hidden], added by position.
        token_types: float32 [token types, hidden], added by token type; None where there is only one, which is added to
            ``positions``.
    """

    words: NDArray[Any]
    word_scales: Floats | None
    zero_point: int
    positions: Floats
    token_types: Floats | None

    def word_rows(self, ids: NDArray[np.int64] | slice) -> Floats:
        """Returns rows of ``words``, float32 [tokens, hidden]."""
        rows: Floats = self.words[ids].astype(np.float32)
        if self.word_scales is None:
            return rows
        scales = self.word_scales[ids]
        parts = (rows - np.float32(self.zero_point)).reshape(*scales.shape, -1) * scales[..., None]
        return parts.reshape(rows.shape)

    def look_up(self, ids: NDArray[np.int64], types: NDArray[np.int64]) -> Floats:
        """Returns float32 [tokens, hidden] for one text; ``types`` are used where the model has token types."""
        rows = self.word_rows(ids) + self.positions[: len(ids)]
        return rows if self.token_types is None else rows + self.token_types[types]


@dataclass(frozen=True, slots=True, eq=False)
class Classifier:
    """Classifier of a cross-encoder on the first token's vector: a projection, tanh, and a projection to one score."""

    pooler: Linear
    output: Linear


@dataclass(frozen=True, slots=True, eq=False)
class BertParts:
    """An encoder's network.

    Attributes:
        pooling: How an embedder computes a text's vector; None for a cross-encoder.
        classifier: Classifier of a cross-encoder; None for an embedder.
    """

    heads: int
    tables: TokenTables
    norm: Norm
    layers: tuple[Layer, ...]
    pooling: Pooling | None
    classifier: Classifier | None

    @property
    def hidden(self) -> int:
        """Elements of a token's vector."""
        return len(self.norm.scale)


def read_network(model: onnx.ModelProto) -> BertParts:
    """Reads the network of a graph."""
    if model.graph.name == MODERN_BERT:
        raise ModelNotLowerable("ModernBERT encoders run on processor cores only")
    try:
        return _Reader(model.graph).parts()
    except (KeyError, ValueError, IndexError) as error:
        raise ModelNotLowerable(
            f"only encoders in this product's own form can be given fixed shapes ({error!r} is missing or of another "
            "form); add the model again from its checkpoint with `edge-rag models add`"
        ) from error


class _Reader:
    def __init__(self, graph: onnx.GraphProto) -> None:
        self._nodes = {name: node for node in graph.node for name in node.output}
        self._stored = {tensor.name: tensor for tensor in graph.initializer}
        self._outputs = {value.name for value in graph.output}

    def parts(self) -> BertParts:
        count = sum(node.op_type == "SequenceAttention" for node in self._nodes.values())
        heads = {
            (found["num_heads"], found["scale"])
            for node in self._nodes.values()
            if node.op_type == "SequenceAttention"
            for found in (attributes(node),)
        }
        ((number, scale),) = heads
        layers = tuple(self._layer(f"encoder.layer.{layer}", scale) for layer in range(count))
        classifier = pooling = None
        if self._outputs == {"token_vectors", "sentence_vectors"}:
            pooling = Pooling.MEAN if "total" in self._nodes else Pooling.CLS
        else:
            classifier = Classifier(self._linear("pooled.sum"), self._classifier())
        return BertParts(number, self._tables(), self._norm("embeddings.LayerNorm"), layers, pooling, classifier)

    def _layer(self, name: str, scale: float) -> Layer:
        qkv = self._linear(f"{name}.qkv")
        third = qkv.weight.shape[1] // 3
        return Layer(
            qkv.columns(slice(third), scale),
            qkv.columns(slice(third, 2 * third)),
            qkv.columns(slice(2 * third, None)),
            self._linear(f"{name}.mixed"),
            self._norm(f"{name}.attention.output.LayerNorm"),
            self._linear(f"{name}.widened"),
            self._linear(f"{name}.narrowed"),
            self._norm(f"{name}.output.LayerNorm"),
        )

    def _linear(self, name: str) -> Linear:
        bias = self._array(f"{name}.bias")
        if f"{name}.product" in self._nodes:
            return Linear(self._array(f"{name}.weight"), bias)
        return Linear(dequantize(self._packed(name, "QuantizedMatMul")), bias)

    def _norm(self, part: str) -> Norm:
        epsilon = attributes(self._node(f"{part}.normed", "SkipLayerNormalization"))["epsilon"]
        return Norm(self._array(f"{part}.weight"), self._array(f"{part}.bias"), epsilon)

    def _classifier(self) -> Linear:
        self._node("scores", "Add")
        weight = self._array("classifier.weight")
        return Linear(np.ascontiguousarray(weight.reshape(1, -1).T), self._array("classifier.bias").reshape(1))

    def _tables(self) -> TokenTables:
        token_types = self._array("types") if "segment" in self._nodes else None
        positions = self._array("places")
        if "word.table" in self._stored:
            return TokenTables(self._array("word.table"), None, 0, positions, token_types)
        packed = self._packed("word", "QuantizedRows")
        form = packed.form
        even = form.blocks == 1 or form.rows % form.block_size == 0
        if not even or packed.zero_points is not None:
            raise ValueError("word")
        words, scales = (np.ascontiguousarray(stored.T) for stored in (packed.values, packed.scales))
        return TokenTables(words, scales.astype(np.float32), form.default_zero_point, positions, token_types)

    def _packed(self, name: str, operator: str) -> QuantizedMatrix:
        found: Mapping[str, Any] = attributes(self._node(name, operator))
        form = BlockFormat(found["K"], found["N"], found["bits"], found["block_size"])
        return unpack(PackedMatrix(form, self._array(f"{name}.weight"), self._array(f"{name}.scales")))

    def _node(self, name: str, operator: str) -> onnx.NodeProto:
        node = self._nodes[name]
        if node.op_type != operator:
            raise ValueError(name)
        return node

    def _array(self, name: str) -> NDArray[Any]:
        array: NDArray[Any] = numpy_helper.to_array(self._stored[name])
        return array
