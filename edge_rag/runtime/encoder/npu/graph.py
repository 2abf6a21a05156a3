"""Builds an encoder's graph for one text of one length, in operators that fixed-shape processors support.

The caller looks tokens up: a table of rows is memory, not arithmetic, and each length's graph would contain a copy. So
the graph starts with the vectors of the tokens. A shorter text is padded, and a bias excludes the padding from
attention.

A graph is built in fp32 for calibration, and quantized once the ranges are known. Quantized, every value passes through
``QuantizeLinear`` and ``DequantizeLinear``, which tell an execution provider the integers it may compute in: unsigned
activations of 16 bits, weights of 8 bits with one scale for each column, biases of 32 bits with the product of both
scales. One scale for a whole weight is ten times less accurate: the least cosine of the default embedder to fp32 is
then 0.97, with one for each column 0.998.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto

from edge_rag.runtime.encoder.bert_network import BertParts, Layer, Linear, Norm
from edge_rag.runtime.lowering.onnx_graph import GraphBuilder, rename

EMBEDDED, BIAS, HIDDEN, SCORE = "embedded", "bias", "hidden", "score"

LOWERING = 1
"""Incremented when the same model gets another graph."""

_HEADS, _KEYS = [1, 0, 2], [1, 2, 0]

OPSET = 21
"""The first opset whose ``QuantizeLinear`` takes 16 bits."""

Range: TypeAlias = tuple[float, float]
"""Least and largest value of an activation; 0 lies between them."""

_LEVELS = 65_535
_SMALLEST_SCALE = 1e-9
_FACTOR_BITS = 8
# Half a step, and a margin for intermediate rounding.
_ROUNDING = 0.52
# The rest of a product after 8 bits is less than this part of it: 1/500 where softmax weights are multiplied, and less
# than 1/100 of the least or the largest score over heads of up to 128 elements, with independent roundings.
_REST_SHARE = 64


@dataclass(frozen=True, slots=True)
class Scale:
    """Quantization of an activation to 16 bits: its value is (stored - zero point) * step."""

    step: np.float32
    zero: np.uint16

    @property
    def extent(self) -> Range:
        step = float(self.step)
        return -int(self.zero) * step, (_LEVELS - int(self.zero)) * step

    @staticmethod
    def over(extent: Range) -> Scale:
        low, high = min(extent[0], 0.0), max(extent[1], 0.0)
        return Scale.with_step(extent, max((high - low) / _LEVELS, _SMALLEST_SCALE))

    @staticmethod
    def with_step(extent: Range, step: float) -> Scale:
        return Scale(np.float32(step), np.uint16(min(round(-min(extent[0], 0.0) / step), _LEVELS)))


class QdqBuilder(GraphBuilder):
    """A builder that rounds every value it adds to 16 bits.

    Args:
        ranges: Range of each activation by its name; None builds everything in fp32.

    Attributes:
        activations: Names of the activations, inputs first.
    """

    def __init__(self, ranges: Mapping[str, Range] | None) -> None:
        super().__init__()
        self.ranges = ranges
        self.activations: list[str] = []
        self._scales: dict[str, Scale] = {}

    def input(self, name: str, element: int, shape: Sequence[str | int]) -> str:
        return self._rounded(super().input(name, element, shape))

    def add(self, operator: str, inputs: Sequence[str], name: str, domain: str | None = None, **attributes: Any) -> str:
        return self._rounded(super().add(operator, inputs, name, domain, **attributes))

    def move(self, operator: str, value: str, rest: list[str], name: str, **attributes: Any) -> str:
        """Adds a node that only moves elements; its result has the scale of its input."""
        return self._rounded(super().add(operator, [value, *rest], name, **attributes), self._scales.get(value))

    def constant(self, name: str, value: NDArray[Any]) -> str:
        return super().constant(name, np.atleast_1d(value))

    def product(self, left: str, right: str, name: str) -> str:
        """Multiplies two activations.

        Hexagon's products of 16 by 16 bits read only 8 bits of the right operand, which alone changes the result of
        attention by 3%. So the right operand is rounded to 8 bits, the rest is rounded with a much finer step, and both
        are multiplied.
        """
        if self.ranges is None:
            return self.add("MatMul", [left, right], name)
        whole = self._scales[right]
        low, high = whole.extent
        step = np.float32((high - low) / 255)
        coarse = self._convert(right, f"{name}.coarse", step, np.uint8(round(-low / float(step))))
        widened = self._convert(coarse, f"{name}.widened", whole.step, whole.zero)
        most = float(step) * _ROUNDING
        rest = self._rounded(super().add("Sub", [right, widened], f"{name}.rest"), Scale.over((-most, most)))
        extent = self.ranges[name]
        largest = max(-extent[0], extent[1]) / _REST_SHARE
        parts = [
            self._part(left, coarse, float(step), f"{name}.of_coarse", extent),
            self._part(left, rest, float(self._scales[rest].step), f"{name}.of_rest", (-largest, largest)),
        ]
        return self.add("Add", parts, name)

    def _part(self, left: str, right: str, right_step: float, name: str, extent: Range) -> str:
        super().add("MatMul", [left, right], name)
        factor = float(self._scales[left].step) * right_step
        step = factor / _short(factor / float(Scale.over(extent).step), down=True)
        return self._rounded(name, Scale.with_step(extent, step))

    def _convert(self, value: str, name: str, step: np.float32, zero: np.integer[Any], read: str = "") -> str:
        """Rounds a value with a scale of this name; the result is named ``read``, or as the scale."""
        how = [self.constant(f"{name}.step", np.array(step)), self.constant(f"{name}.zero", np.array(zero))]
        stored = super().add("QuantizeLinear", [value, *how], f"{name}.stored")
        return super().add("DequantizeLinear", [stored, *how], read or name)

    def linear(self, rows: str, linear: Linear, name: str) -> str:
        """Multiplies rows by a weight and adds the bias."""
        weight, bias = f"{name}.weight", f"{name}.bias"
        if self.ranges is None:
            self.constant(weight, linear.weight)
            self.constant(bias, linear.bias)
        else:
            into, out = float(self._scales[rows].step), float(Scale.over(self.ranges[name]).step)
            finest = np.maximum(np.abs(linear.weight).max(axis=0).astype(np.float64) / 127, _SMALLEST_SCALE)
            steps = (_short(finest * into / out) * out / into).astype(np.float32)
            values = np.clip(np.rint(linear.weight / steps), -127, 127).astype(np.int8)
            self._stored(weight, values, steps, axis=1)
            bias_steps = np.maximum(steps * np.float32(into), np.abs(linear.bias) / np.float32(2**30))
            self._stored(bias, np.rint(linear.bias / bias_steps).astype(np.int32), bias_steps, axis=0)
        return self.add("Gemm", [rows, weight, bias], name)

    def norm(self, rows: str, norm: Norm, name: str) -> str:
        """Normalizes rows."""
        scale, bias = f"{name}.scale", f"{name}.bias"
        if self.ranges is None:
            self.constant(scale, norm.scale)
            self.constant(bias, norm.bias)
        else:
            low, high = min(float(norm.scale.min()), 0.0), max(float(norm.scale.max()), 0.0)
            step = np.float32(max((high - low) / 255, _SMALLEST_SCALE))
            zero = round(-low / float(step))
            values = np.clip(np.rint(norm.scale / step) + zero, 0, 255).astype(np.uint8)
            self._stored(scale, values, np.array(step), zero=np.uint8(zero))
            bias_step = max(step * self._scales[rows].step, np.abs(norm.bias).max() / np.float32(2**30))
            self._stored(bias, np.rint(norm.bias / bias_step).astype(np.int32), np.array(bias_step))
        return self.add("LayerNormalization", [rows, scale, bias], name, axis=-1, epsilon=norm.epsilon)

    def finished(self, output: str, as_name: str, shape: list[int]) -> onnx.ModelProto:
        """Returns the model, whose float32 output gets another name."""
        for node in self.nodes:
            rename(node.output, output, as_name)
        self.output(as_name, TensorProto.FLOAT, shape)
        return self.model("bert", {"": OPSET}, ir_version=10)

    def _rounded(self, name: str, scale: Scale | None = None) -> str:
        self.activations.append(name)
        if self.ranges is None:
            return name
        scale = scale or Scale.over(self.ranges[name])
        read = self._convert(name, name, scale.step, scale.zero, f"{name}.read")
        self._scales[read] = scale
        return read

    def _stored(
        self,
        name: str,
        values: NDArray[Any],
        steps: NDArray[np.float32],
        axis: int | None = None,
        zero: np.uint8 | None = None,
    ) -> None:
        zeros = np.zeros(steps.shape, values.dtype) if zero is None else np.array(zero)
        inputs = [
            self.constant(f"{name}.stored", values),
            self.constant(f"{name}.step", steps.astype(np.float32)),
            self.constant(f"{name}.zero", zeros),
        ]
        which: dict[str, Any] = {} if axis is None else {"axis": axis}
        super().add("DequantizeLinear", inputs, name, **which)


def _short(factor: Any, down: bool = False) -> Any:
    """Rounds rescaling factors of product sums, up or down, to a few binary digits.

    Hexagon keeps about 11 digits. With more, it rounds the factor, and with it the result's zero point: by up to 18
    steps, equal for every row of a column, which through the default embedder reduces agreement eight times as much as
    all other roundings.
    """
    unit = 2.0 ** (np.floor(np.log2(factor)) - _FACTOR_BITS + 1)
    return (np.floor if down else np.ceil)(factor / unit) * unit


@dataclass(frozen=True, slots=True, eq=False)
class FixedGraph:
    """A graph.

    Attributes:
        model: Inputs ``embedded`` float32 [tokens, hidden] and ``bias`` float32 [1, 1, tokens], added to the attention
            scores of each key; output ``hidden`` float32 [tokens, hidden] of an embedder, or ``score`` float32 [1, 1]
            of a cross-encoder.
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
        ranges: Range of every activation; None builds the graph in fp32.
    """
    graph = QdqBuilder(ranges)
    rows = graph.input(EMBEDDED, TensorProto.FLOAT, [tokens, parts.hidden])
    bias = graph.input(BIAS, TensorProto.FLOAT, [1, 1, tokens])
    rows = graph.norm(rows, parts.norm, "embeddings")
    for number, layer in enumerate(parts.layers):
        rows = _layer(graph, parts, layer, f"layer.{number}", rows, bias, tokens)
    if parts.classifier is None:
        model = graph.finished(rows, HIDDEN, [tokens, parts.hidden])
    else:
        ends = [graph.constant(name, np.array([value], np.int64)) for name, value in (("first", 0), ("second", 1))]
        first = graph.move("Slice", rows, [*ends, graph.constant("rows", np.array([0], np.int64))], "first_token")
        pooled = graph.add("Tanh", [graph.linear(first, parts.classifier.pooler, "pooled.sum")], "pooled")
        model = graph.finished(graph.linear(pooled, parts.classifier.output, "judged"), SCORE, [1, 1])
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
