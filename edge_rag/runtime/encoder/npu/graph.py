"""Builds an encoder's graph for one text of one length, in operators that fixed-shape processors support.

The caller looks tokens up: a table of rows is memory, not arithmetic, and each length's graph would contain a copy. So
the graph starts with the vectors of the tokens. A shorter text is padded, and a bias excludes the padding from
attention.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx

from edge_rag.runtime.encoder.bert_parts import BertParts, Layer
from edge_rag.runtime.encoder.npu.qdq_builder import QdqBuilder, Range

EMBEDDED, BIAS, HIDDEN, SCORE = "embedded", "bias", "hidden", "score"

LOWERING = 1
"""Incremented when the same model gets another graph."""

_HEADS, _KEYS = [1, 0, 2], [1, 2, 0]


@dataclass(frozen=True, slots=True, eq=False)
class FixedGraph:
    """A graph.

    Attributes:
        model: Inputs ``embedded`` float32 [tokens, hidden] and ``bias`` float32 [1, 1, tokens], added to the attention
            scores of each key; output ``hidden`` float32 [tokens, hidden] of an embedder, or ``score`` float32 [1, 1]
            of a cross-encoder.
        activations: Names of all activations.
        scores: Names of attention scores before the bias, first layer first.
        masked: Names of attention scores after it, in the same order.
    """

    model: onnx.ModelProto
    activations: tuple[str, ...]
    scores: tuple[str, ...]
    masked: tuple[str, ...]


def fixed_graph(parts: BertParts, tokens: int, ranges: Mapping[str, Range] | None) -> FixedGraph:
    """Builds an encoder's graph for texts of up to ``tokens`` tokens.

    Args:
        parts: The network.
        tokens: Length that a text is padded to.
        ranges: Range of every activation; None builds the graph in fp32.
    """
    graph = QdqBuilder(ranges)
    rows = graph.input(EMBEDDED, [tokens, parts.hidden])
    bias = graph.input(BIAS, [1, 1, tokens])
    rows = graph.norm(rows, parts.norm, "embeddings")
    for number, layer in enumerate(parts.layers):
        rows = _layer(graph, parts, layer, f"layer.{number}", rows, bias, tokens)
    if parts.classifier is None:
        model = graph.model(rows, HIDDEN, [tokens, parts.hidden])
    else:
        ends = [graph.constant(name, np.array([value], np.int64)) for name, value in (("first", 0), ("second", 1))]
        first = graph.move("Slice", rows, [*ends, graph.constant("rows", np.array([0], np.int64))], "first_token")
        pooled = graph.add("Tanh", [graph.linear(first, parts.classifier.pooler, "pooled.sum")], "pooled")
        model = graph.model(graph.linear(pooled, parts.classifier.output, "judged"), SCORE, [1, 1])
    numbers = range(len(parts.layers))
    return FixedGraph(
        model,
        tuple(graph.activations),
        tuple(f"layer.{number}.scores" for number in numbers),
        tuple(f"layer.{number}.masked" for number in numbers),
    )


def _layer(graph: QdqBuilder, parts: BertParts, layer: Layer, name: str, rows: str, bias: str, tokens: int) -> str:
    size = parts.hidden // parts.heads
    apart = graph.constant("apart", np.array([tokens, parts.heads, size], np.int64))

    def by_head(value: str, part: str, order: list[int]) -> str:
        heads = graph.move("Reshape", value, [apart], f"{name}.{part}.heads")
        return graph.move("Transpose", heads, [], f"{name}.{part}.by_head", perm=order)

    queries = by_head(graph.linear(rows, layer.query, f"{name}.query"), "query", _HEADS)
    keys = by_head(graph.linear(rows, layer.key, f"{name}.key"), "key", _KEYS)
    values = by_head(graph.linear(rows, layer.value, f"{name}.value"), "value", _HEADS)
    scores = graph.product(queries, keys, f"{name}.scores")
    shares = graph.add("Softmax", [graph.add("Add", [scores, bias], f"{name}.masked")], f"{name}.shares", axis=-1)
    attended = graph.move(
        "Transpose", graph.product(shares, values, f"{name}.sums"), [], f"{name}.by_token", perm=_HEADS
    )
    joined = graph.constant("joined", np.array([tokens, parts.hidden], np.int64))
    attended = graph.move("Reshape", attended, [joined], f"{name}.attended")
    mixed = graph.linear(attended, layer.attention_output, f"{name}.mixed")
    rows = graph.norm(
        graph.add("Add", [rows, mixed], f"{name}.with_attention"), layer.attention_norm, f"{name}.between"
    )
    widened = graph.add("Gelu", [graph.linear(rows, layer.intermediate, f"{name}.widened")], f"{name}.gelu")
    narrowed = graph.linear(widened, layer.output, f"{name}.narrowed")
    return graph.norm(graph.add("Add", [rows, narrowed], f"{name}.with_both"), layer.output_norm, name)
