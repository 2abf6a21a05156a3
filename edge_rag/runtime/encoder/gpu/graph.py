"""Builds an encoder's graph over padded batches [texts, tokens] of any size, in standard operators only.

No node computes with shapes: values that depend on them are inputs, or are copied by ``Reshape``. ONNX Runtime places
shape computations on processor cores, which fails where the whole graph must run on the GPU.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from edge_rag.core.placement import Precision
from edge_rag.runtime.encoder.bert_graph import Pooling
from edge_rag.runtime.encoder.bert_network import BertParts, Layer, Linear, Norm
from edge_rag.runtime.lowering.onnx_graph import GraphBuilder

INPUT_IDS: Final = "input_ids"
POSITIONS: Final = "positions"
MASK: Final = "attention_mask"
TYPES: Final = "token_type_ids"

LOWERING: Final = 1
"""Incremented when the same model gets another graph."""

_OPSET: Final = 17  # the first with LayerNormalization
# A bias that reduces a softmax weight to 0, in 16 bits too.
_NEVER: Final = -1e4
_LEAST_LENGTH: Final = 1e-12
_ELEMENTS: Final = {Precision.FP16: TensorProto.FLOAT16, Precision.FP32: TensorProto.FLOAT}


def graph_inputs(parts: BertParts) -> tuple[str, ...]:
    """Returns the inputs of an encoder's graph, all int64 [texts, tokens]."""
    return (INPUT_IDS, POSITIONS, MASK, *((TYPES,) if parts.tables.token_types is not None else ()))


def padded_graph(parts: BertParts, precision: Precision) -> onnx.ModelProto:
    """Builds an encoder's graph.

    Inputs: ``graph_inputs``, where the mask is 1 for a text's tokens and 0 for padding. Outputs, float32: of an
    embedder ``token_vectors`` [texts, tokens, hidden] and ``sentence_vectors`` [texts, hidden], of unit length; of a
    cross-encoder ``scores`` [texts, 1].

    Args:
        precision: FP16 or FP32, for weights and activations; pooling and norms are computed in FP32.
    """
    graph = _Graph(_ELEMENTS[precision])
    for name in graph_inputs(parts):
        graph.input(name, TensorProto.INT64, ["texts", "tokens"])
    mask = graph.cast(MASK, TensorProto.FLOAT, "mask.real")
    unmasked = graph.add("Sub", [graph.constant("one", np.array(1, np.float32)), mask], "mask.rest")
    bias = graph.add("Mul", [unmasked, graph.constant("never", np.array(_NEVER, np.float32))], "mask.bias")
    bias = graph.cast(
        graph.add("Unsqueeze", [bias, graph.constant("inner", np.array([1, 2], np.int64))], "mask.by_head"),
        graph.element,
        "mask.own",
    )
    rows = graph.norm(_looked_up(graph, parts), parts.norm, "embeddings")
    for number, layer in enumerate(parts.layers):
        rows = _layer(graph, parts, layer, f"layer.{number}", rows, bias)
    if parts.classifier is not None:
        pooled = graph.add("Tanh", [graph.linear(_first(graph, rows), parts.classifier.pooler, "pooled.sum")], "pooled")
        scores = graph.linear(pooled, parts.classifier.output, "judged")
        graph.output(graph.cast(scores, TensorProto.FLOAT, "scores"), TensorProto.FLOAT, ["texts", 1])
        return graph.model("bert", {"": _OPSET}, ir_version=8)
    hidden = graph.cast(rows, TensorProto.FLOAT, "hidden")
    graph.output(graph.unit(hidden, "token_vectors"), TensorProto.FLOAT, ["texts", "tokens", parts.hidden])
    if parts.pooling is Pooling.MEAN:
        # Mean and sum have the same direction, and the vector is normalized.
        weights = graph.add("Unsqueeze", [mask, graph.constant("last", np.array([-1], np.int64))], "mask.by_token")
        axis = graph.constant("tokens", np.array([1], np.int64))
        pooled = graph.add("ReduceSum", [graph.add("Mul", [hidden, weights], "own"), axis], "total", keepdims=0)
    else:
        pooled = _first(graph, hidden)
    graph.output(graph.unit(pooled, "sentence_vectors"), TensorProto.FLOAT, ["texts", parts.hidden])
    return graph.model("bert", {"": _OPSET}, ir_version=8)


def _looked_up(graph: _Graph, parts: BertParts) -> str:
    tables = parts.tables
    words = graph.weight("words", tables.word_rows(slice(None)))
    rows = graph.add("Gather", [words, INPUT_IDS], "word")
    places = graph.add("Gather", [graph.weight("places", tables.positions), POSITIONS], "place")
    rows = graph.add("Add", [rows, places], "placed")
    if tables.token_types is None:
        return rows
    segments = graph.add("Gather", [graph.weight("types", tables.token_types), TYPES], "segment")
    return graph.add("Add", [rows, segments], "in_segment")


def _first(graph: _Graph, rows: str) -> str:
    return graph.add("Gather", [rows, graph.constant("first", np.array(0, np.int64))], "first_token", axis=1)


def _layer(graph: _Graph, parts: BertParts, layer: Layer, name: str, rows: str, bias: str) -> str:
    # 0 copies the dimension of the input.
    apart = graph.constant("apart", np.array([0, 0, parts.heads, parts.hidden // parts.heads], np.int64))
    joined = graph.constant("joined", np.array([0, 0, parts.hidden], np.int64))

    def by_head(linear: Linear, part: str, order: list[int]) -> str:
        heads = graph.add("Reshape", [graph.linear(rows, linear, f"{name}.{part}"), apart], f"{name}.{part}.heads")
        return graph.add("Transpose", [heads], f"{name}.{part}.by_head", perm=order)

    queries = by_head(layer.query, "query", [0, 2, 1, 3])
    keys = by_head(layer.key, "key", [0, 2, 3, 1])
    values = by_head(layer.value, "value", [0, 2, 1, 3])
    masked = graph.add("Add", [graph.add("MatMul", [queries, keys], f"{name}.scores"), bias], f"{name}.masked")
    shares = graph.add("Softmax", [masked], f"{name}.shares", axis=-1)
    sums = graph.add("MatMul", [shares, values], f"{name}.sums")
    attended = graph.add("Transpose", [sums], f"{name}.by_token", perm=[0, 2, 1, 3])
    mixed = graph.linear(
        graph.add("Reshape", [attended, joined], f"{name}.attended"), layer.attention_output, f"{name}.mixed"
    )
    rows = graph.norm(
        graph.add("Add", [rows, mixed], f"{name}.with_attention"), layer.attention_norm, f"{name}.between"
    )
    widened = graph.gelu(graph.linear(rows, layer.intermediate, f"{name}.widened"), f"{name}.gelu")
    narrowed = graph.linear(widened, layer.output, f"{name}.narrowed")
    return graph.norm(graph.add("Add", [rows, narrowed], f"{name}.with_both"), layer.output_norm, name)


class _Graph(GraphBuilder):
    """A builder with the layers of an encoder, whose weights and activations have one type of elements."""

    def __init__(self, element: int) -> None:
        super().__init__()
        self.element = element

    def weight(self, name: str, value: NDArray[Any]) -> str:
        # Overflow is detected when the first text is run.
        with np.errstate(over="ignore"):
            return self.constant(name, value.astype(helper.tensor_dtype_to_np_dtype(self.element)))

    def cast(self, value: str, element: int, name: str) -> str:
        return self.add("Cast", [value], name, to=element)

    def linear(self, rows: str, linear: Linear, name: str) -> str:
        product = self.add("MatMul", [rows, self.weight(f"{name}.weight", linear.weight)], f"{name}.product")
        return self.add("Add", [product, self.weight(f"{name}.bias", linear.bias)], name)

    def norm(self, rows: str, norm: Norm, name: str) -> str:
        inputs = [rows, self.weight(f"{name}.scale", norm.scale), self.weight(f"{name}.bias", norm.bias)]
        return self.add("LayerNormalization", inputs, name, axis=-1, epsilon=norm.epsilon)

    def gelu(self, value: str, name: str) -> str:
        half, one, root = (
            self.weight(f"gelu.{part}", np.array(number, np.float32))
            for part, number in (("half", 0.5), ("one", 1.0), ("root", 2.0**0.5))
        )
        error = self.add("Erf", [self.add("Div", [value, root], f"{name}.divided")], f"{name}.erf")
        share = self.add("Mul", [self.add("Add", [error, one], f"{name}.more"), half], f"{name}.share")
        return self.add("Mul", [value, share], name)

    def unit(self, rows: str, name: str) -> str:
        length = self.add("ReduceL2", [rows], f"{name}.length", axes=[-1], keepdims=1)
        least = self.constant("least_length", np.array(_LEAST_LENGTH, np.float32))
        return self.add("Div", [rows, self.add("Max", [length, least], f"{name}.longer")], name)
