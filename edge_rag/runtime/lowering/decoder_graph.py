"""Writes the paged graph of a decoder from a description of its architecture and its quantized weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from edge_rag.core.atomic_file import replace_file
from edge_rag.runtime.lowering.geometry import (
    GEOMETRY_FILE,
    GRAPH_FILE,
    PAGE_TOKENS,
    WEIGHTS_FILE,
    PagedGeometry,
    describe,
)
from edge_rag.runtime.lowering.onnx_graph import OPS_DOMAIN, GraphBuilder
from edge_rag.runtime.lowering.weight_packing import (
    FACTORS,
    PANEL_COLUMNS,
    BlockFormat,
    PackedMatrix,
    QuantizedMatrix,
    WeightsFile,
    alternate,
    beside,
    operator_inputs,
    pack,
)

Floats = NDArray[np.float32]

_OPSET = 21
_IR_VERSION = 10
_MICROSOFT = "com.microsoft"
_AXIS, _TOKENS, _ROWS = "axis", "tokens", "rows"
_STEP_INPUTS = (
    ("input_ids", TensorProto.INT64, ["num_tokens"]),
    ("positions", TensorProto.INT32, ["num_tokens"]),
    ("slot_mapping", TensorProto.INT32, ["num_tokens"]),
    ("cumulative_sequence_lengths", TensorProto.INT32, ["batch_plus_one"]),
    ("block_table", TensorProto.INT32, ["batch", "max_pages"]),
    ("logits_indices", TensorProto.INT64, ["num_logits"]),
)


class Activation(Enum):
    """Activation of the gate of a feed-forward layer."""

    SILU = "silu"
    GELU_TANH = "gelu_tanh"


@dataclass(frozen=True, slots=True)
class Rotary:
    """A rotary position embedding; a head's first half is rotated against its second one.

    Attributes:
        frequencies: Radians per token, float64 [pairs].
        magnitude: Factor of sine and cosine.
    """

    frequencies: NDArray[np.float64]
    magnitude: float = 1.0


@dataclass(frozen=True, slots=True)
class Layer:
    """What distinguishes a layer.

    Attributes:
        rotary: Key of its rotary embedding; None: its queries and keys have no positions.
        window: Tokens that it sees; None: all.
    """

    rotary: str | None
    window: int | None = None


@dataclass(frozen=True, slots=True)
class DecoderDescription:
    """A decoder: attention and a gated feed-forward network in each layer, both behind an RMS norm.

    Attributes:
        max_context: Positions are below this, tokens.
        logit_scale: Factor of the logits.
    """

    layers: tuple[Layer, ...]
    query_heads: int
    kv_heads: int
    head_size: int
    epsilon: float
    vocabulary_size: int
    max_context: int
    end_tokens: frozenset[int]
    rotaries: Mapping[str, Rotary]
    activation: Activation = Activation.SILU
    attention_scale: float = 0.0
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0
    head_norms: bool = False
    output_norms: bool = False

    @property
    def geometry(self) -> PagedGeometry:
        """Its sizes."""
        return PagedGeometry(
            layers=len(self.layers),
            query_heads=self.query_heads,
            kv_heads=self.kv_heads,
            head_size=self.head_size,
            page_tokens=PAGE_TOKENS,
            vocabulary_size=self.vocabulary_size,
            max_context=self.max_context,
            end_tokens=self.end_tokens,
        )


class DecoderWeights(Protocol):
    """Weights by name.

    Matrices: ``embeddings``, ``head`` (absent if it is that of the embeddings), and of each layer ``N.query``,
    ``N.key``, ``N.value``, ``N.attention_output``, ``N.gate``, ``N.up``, ``N.down``. Vectors: ``norm``;
    ``N.attention_norm``, ``N.feed_forward_norm``, ``N.query_norm``, ``N.key_norm``, ``N.attention_output_norm``,
    ``N.feed_forward_output_norm``, and biases by the name of the matrix and ``.bias``.
    """

    def has(self, name: str) -> bool:
        """Whether there is a matrix or vector of that name."""
        ...

    def matrix(self, name: str) -> QuantizedMatrix:
        """Returns a matrix [inputs, outputs] of a layer."""
        ...

    def by_token(self, name: str) -> Sequence[QuantizedMatrix]:
        """Returns ``embeddings`` or ``head``, [width, tokens]; two parts if the first tokens have another precision."""
        ...

    def vector(self, name: str) -> Floats:
        """Returns a vector."""
        ...


def write_decoder(
    description: DecoderDescription, weights: DecoderWeights, folder: Path, sources: Mapping[str, str]
) -> None:
    """Writes graph, weights and sizes; with one layer's matrix in memory at a time.

    Args:
        sources: SHA-256 of each source file, by name.
    """
    with WeightsFile(folder / WEIGHTS_FILE) as file:
        model = _GraphWriter(description, weights, file).write()
    replace_file(folder / GRAPH_FILE, model.SerializeToString(deterministic=True))
    replace_file(folder / GEOMETRY_FILE, describe(description.geometry, dict(sources)).encode())


class _GraphWriter(GraphBuilder):
    """Adds nodes in order of execution. Values have the shape [1, tokens, features]."""

    def __init__(self, description: DecoderDescription, weights: DecoderWeights, file: WeightsFile) -> None:
        super().__init__()
        self._description = description
        self._weights = weights
        self._file = file

    def write(self) -> onnx.ModelProto:
        found = self._description
        self.constant(_AXIS, np.array([0], np.int64))
        self._node("Unsqueeze", ["input_ids", _AXIS], [_TOKENS])
        self._embed()
        stream = self._scaled("embedded", found.embedding_scale)
        normed = self._norm(stream, "0.attention_norm")
        for number, layer in enumerate(found.layers):
            attention = self._attention(normed, number, layer)
            stream, normed = self._add_and_norm(stream, attention, f"{number}.feed_forward_norm")
            result = self._feed_forward(normed, number)
            last = number + 1 == len(found.layers)
            stream, normed = self._add_and_norm(stream, result, "norm" if last else f"{number + 1}.attention_norm")
        self._node("Gather", [normed, "logits_indices"], [_ROWS], axis=1)
        head = "head" if self._weights.has("head") else "embeddings"
        self._score(head)
        self._node("Squeeze", [self._scaled("scores", found.logit_scale), _AXIS], ["logits"])
        for name, kind, shape in _STEP_INPUTS:
            self.input(name, kind, shape)
        for number in range(len(found.layers)):
            self.input(f"pages.{number}", TensorProto.INT8, ["pages", found.geometry.layer_page_bytes])
        self.output("logits", TensorProto.FLOAT, ["num_logits", found.vocabulary_size])
        return self.model("paged", {"": _OPSET, _MICROSOFT: 1, OPS_DOMAIN: 1}, _IR_VERSION)

    def _by_token(self, name: str) -> list[tuple[list[str], BlockFormat]]:
        """Stores a matrix of the vocabulary; returns its parts by token."""
        parts = self._weights.by_token(name)
        return [self._stored(f"{name}.{number}", pack(part)) for number, part in enumerate(parts)]

    def _embed(self) -> None:
        parts = self._by_token("embeddings")
        tokens = sum(form.columns for _, form in parts)
        if tokens != self._description.vocabulary_size:
            raise ValueError(f"the embeddings have {tokens} tokens, the vocabulary {self._description.vocabulary_size}")
        if len(parts) == 1:
            self._quantized("QuantizedRows", [_TOKENS, *parts[0][0]], "embedded", parts[0][1])
            return
        (first, first_form), (rest, rest_form) = parts
        for name, number in (("zero", 0), ("first", first_form.columns), ("last_of_first", first_form.columns - 1)):
            self.constant(name, np.array(number, np.int64))
        self.constant("features", np.array([-1], np.int64))
        self._node("Min", [_TOKENS, "last_of_first"], ["tokens.first"])
        self._quantized("QuantizedRows", ["tokens.first", *first], "embedded.first", first_form)
        self._node("Sub", [_TOKENS, "first"], ["tokens.after"])
        self._node("Max", ["tokens.after", "zero"], ["tokens.rest"])
        self._quantized("QuantizedRows", ["tokens.rest", *rest], "embedded.rest", rest_form)
        self._node("Less", [_TOKENS, "first"], ["is_first"])
        self._node("Unsqueeze", ["is_first", "features"], ["is_first.rows"])
        self._node("Where", ["is_first.rows", "embedded.first", "embedded.rest"], ["embedded"])

    def _score(self, head: str) -> None:
        parts = self._by_token(head)
        names = ["scores"] if len(parts) == 1 else ["scores.first", "scores.rest"]
        for name, (inputs, form) in zip(names, parts, strict=True):
            self._quantized("QuantizedMatMul", [_ROWS, *inputs], name, form)
        if len(parts) > 1:
            self._node("Concat", names, ["scores"], axis=-1)

    def _attention(self, normed: str, number: int, layer: Layer) -> str:
        found = self._description
        parts = [f"{number}.{name}" for name in ("query", "key", "value")]
        if found.head_norms or not self._alike(parts):
            products = [self._product(normed, [part]) for part in parts]
            if found.head_norms:
                for index, heads in ((0, found.query_heads), (1, found.kv_heads)):
                    products[index] = self._head_norm(products[index], f"{parts[index]}_norm", heads)
        else:
            products = [self._product(normed, parts), "", ""]
        options: dict[str, Any] = {} if layer.window is None else {"local_window_size": layer.window}
        cosine, sine = self._rotary(layer.rotary)
        result = f"{number}.attended"
        self._node(
            "PagedAttention",
            [
                *products, f"pages.{number}", cosine, sine,
                "positions", "slot_mapping", "cumulative_sequence_lengths", "block_table",
            ],
            [result],
            OPS_DOMAIN,
            num_heads=found.query_heads,
            kv_num_heads=found.kv_heads,
            page_tokens=PAGE_TOKENS,
            scale=found.attention_scale or found.head_size**-0.5,
            **options,
        )  # fmt: skip
        return self._finished(self._product(result, [f"{number}.attention_output"]), f"{number}.attention_output_norm")

    def _feed_forward(self, normed: str, number: int) -> str:
        gate, up = f"{number}.gate", f"{number}.up"
        if self._description.activation is Activation.SILU and self._may_alternate(gate, up):
            result = f"{number}.gated"
            inputs, form = self._packed([gate, up], alternating=True)
            self._quantized("QuantizedMatMul", [normed, *inputs], result, form, gated=1)
        else:
            result = self._gated(self._product(normed, [gate]), self._product(normed, [up]), f"{number}.gated")
        return self._finished(self._product(result, [f"{number}.down"]), f"{number}.feed_forward_output_norm")

    def _gated(self, gate: str, up: str, result: str) -> str:
        activated = f"{gate}.activated"
        if self._description.activation is Activation.SILU:
            self._node("Sigmoid", [gate], [f"{gate}.sigmoid"])
            self._node("Mul", [gate, f"{gate}.sigmoid"], [activated])
        else:
            self._node("FastGelu", [gate], [activated], _MICROSOFT)
        self._node("Mul", [activated, up], [result])
        return result

    def _finished(self, value: str, norm: str) -> str:
        if self._description.output_norms:
            value = self._norm(value, norm)
        return self._scaled(value, self._description.residual_scale)

    def _add_and_norm(self, stream: str, added: str, norm: str) -> tuple[str, str]:
        total, normed = f"{norm}.stream", f"{norm}.normed"
        self._node(
            "SkipSimplifiedLayerNormalization",
            [stream, added, self._vector(norm)],
            [normed, "", "", total],
            _MICROSOFT,
            epsilon=self._description.epsilon,
        )
        return total, normed

    def _norm(self, value: str, norm: str) -> str:
        self._node(
            "SimplifiedLayerNormalization",
            [value, self._vector(norm)],
            [f"{norm}.normed"],
            epsilon=self._description.epsilon,
            axis=-1,
            stash_type=1,
        )
        return f"{norm}.normed"

    def _head_norm(self, value: str, norm: str, heads: int) -> str:
        size = self._description.head_size
        self.constant("by_head", np.array([0, -1, size], np.int64))
        self.constant(f"by_token.{heads}", np.array([0, -1, heads * size], np.int64))
        self._node("Reshape", [value, "by_head"], [f"{norm}.heads"])
        self._node("Reshape", [self._norm(f"{norm}.heads", norm), f"by_token.{heads}"], [f"{norm}.tokens"])
        return f"{norm}.tokens"

    def _product(self, value: str, parts: Sequence[str]) -> str:
        """Multiplies by matrices beside each other, and adds their biases."""
        inputs, form = self._packed(parts)
        result = f"{'+'.join(parts)}.product"
        self._quantized("QuantizedMatMul", [value, *inputs], result, form)
        biases = [f"{part}.bias" for part in parts]
        if not any(map(self._weights.has, biases)):
            return result
        name = f"{result}.bias"
        self._store(name, np.concatenate([self._weights.vector(bias) for bias in biases]))
        self._node("Add", [result, name], [f"{result}.biased"])
        return f"{result}.biased"

    def _scaled(self, value: str, factor: float) -> str:
        if factor == 1.0:
            return value
        self.constant(f"{factor!r}", np.array(factor, np.float32))
        self._node("Mul", [value, f"{factor!r}"], [f"{value}.scaled"])
        return f"{value}.scaled"

    def _rotary(self, key: str | None) -> tuple[str, str]:
        names = (f"rotary.{key}.cosine", f"rotary.{key}.sine")
        if names[0] not in self.constants:
            rotary = Rotary(np.zeros(1)) if key is None else self._description.rotaries[key]
            angles = np.arange(self._description.max_context)[:, None] * rotary.frequencies
            for name, function in zip(names, (np.cos, np.sin), strict=True):
                self._store(name, (rotary.magnitude * function(angles)).astype(np.float32))
        return names

    def _alike(self, parts: Sequence[str]) -> bool:
        """Whether matrices can be columns of one: their precision and blocks are the same."""
        biased = {self._weights.has(f"{part}.bias") for part in parts}
        return len(biased) == 1 and len({self._weights.matrix(part).layout for part in parts}) == 1

    def _may_alternate(self, gate: str, up: str) -> bool:
        matrices = [self._weights.matrix(part) for part in (gate, up)]
        biased = any(self._weights.has(f"{part}.bias") for part in (gate, up))
        columns = matrices[0].form.columns
        alike = matrices[0].layout == matrices[1].layout and columns == matrices[1].form.columns
        return alike and not biased and columns % PANEL_COLUMNS == 0

    def _packed(self, parts: Sequence[str], alternating: bool = False) -> tuple[list[str], BlockFormat]:
        matrices = [self._weights.matrix(part) for part in parts]
        packed = alternate(*map(pack, matrices)) if alternating else pack(beside(matrices))
        return self._stored("+".join(parts), packed)

    def _stored(self, name: str, packed: PackedMatrix) -> tuple[list[str], BlockFormat]:
        names = {kind: f"{name}.{kind}" for kind in packed.tensors}
        for kind, values in packed.tensors.items():
            if kind in FACTORS and not (values.view(np.uint32) & 0xFFFF).any():
                self._store_halved(names[kind], values)
            else:
                self._store(names[kind], values)
        return operator_inputs(names), packed.form

    def _vector(self, name: str) -> str:
        if name not in self.constants:
            self._store(name, self._weights.vector(name))
        return name

    def _store(self, name: str, values: NDArray[Any]) -> None:
        if name not in self.constants:
            kind = helper.np_dtype_to_tensor_dtype(values.dtype)
            tensor = TensorProto(name=name, data_type=kind, dims=values.shape)
            self._file.store(tensor, values)
            self.constants[name] = tensor

    def _store_halved(self, name: str, values: Floats) -> None:
        """Writes a tensor in bfloat16, which loses nothing of these values, once; it is widened when it is opened."""
        stored = f"{name}.bfloat16"
        if stored not in self.constants:
            tensor = TensorProto(name=stored, data_type=TensorProto.BFLOAT16, dims=values.shape)
            self._file.store(tensor, (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16))
            self.constants[stored] = tensor
            self._node("Cast", [stored], [name], to=TensorProto.FLOAT)

    def _quantized(self, kind: str, inputs: list[str], result: str, form: BlockFormat, **options: int) -> None:
        sizes = {"K": form.rows, "N": form.columns, "bits": form.bits, "block_size": form.block_size}
        self._node(kind, inputs, [result], OPS_DOMAIN, **sizes, **options)

    def _node(self, kind: str, inputs: list[str], outputs: list[str], domain: str = "", **options: Any) -> None:
        self.nodes.append(helper.make_node(kind, inputs, outputs, outputs[0], domain=domain, **options))
