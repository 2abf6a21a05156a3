"""Builds ModernBERT encoders as ONNX graphs over packed texts (Warner et al., 2024, arXiv 2412.13663).

Pre-norm layers without biases, rotary positions, a gated feed-forward part, and windows in most layers. Inputs, outputs
and promises are those of ``bert_graph``; ``com.microsoft::RotaryEmbedding`` rotates queries and keys at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import onnx

from edge_rag.errors import ModelFolderInvalid, ModelNotLowerable
from edge_rag.runtime.checkpoint.architectures import Settings
from edge_rag.runtime.encoder.bert_graph import (
    BYTE_ROWS,
    HEAD_MULTIPLE,
    MODERN_BERT,
    EncoderBuilder,
    Floats,
    Pooling,
    WeightPrecision,
    embedder_model,
)
from edge_rag.runtime.encoder.tokenizer import LENGTHS
from edge_rag.runtime.lowering.onnx_graph import OPS_DOMAIN
from edge_rag.runtime.lowering.rotary import rotary_frequencies

_ROTARY_DOMAIN: Final = "com.microsoft"
_ACTIVATIONS: Final = ("gelu", "silu")
_LAYER_TYPES: Final = ("full_attention", "sliding_attention")
_MAX_LAYERS: Final = 512
_MAX_WIDTH: Final = 1 << 16
_MAX_HEADS: Final = 1024
_MAX_POSITIONS: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ModernBertLayer:
    """What differs between layers.

    Attributes:
        window: Tokens before and behind a token that it attends to; 0: all of the text.
    """

    window: int
    rotary_base: float


@dataclass(frozen=True, slots=True)
class ModernBertShape:
    """The parameters of a configuration that the graph needs.

    Attributes:
        hidden: Elements of a token's vector.
        max_tokens: Most tokens of a text, special tokens included.
        norm_epsilon: Added to a variance before its root is taken.
    """

    layers: tuple[ModernBertLayer, ...]
    heads: int
    hidden: int
    inner: int
    max_tokens: int
    norm_epsilon: float
    activation: str

    @staticmethod
    def of(config: Settings, max_tokens: int) -> ModernBertShape:
        """Reads Hugging Face's configuration, as transformers 4 and 5 write it."""
        config.refuse("norm_bias", "attention_bias", "mlp_bias")
        activation = config.text("hidden_activation", "gelu")
        if activation not in _ACTIVATIONS:
            raise ModelNotLowerable(
                f"{config.name}: hidden_activation is {activation!r}; known are {', '.join(_ACTIVATIONS)}"
            )
        hidden = config.integer("hidden_size", 1, _MAX_WIDTH)
        heads = config.integer("num_attention_heads", 1, _MAX_HEADS)
        if hidden % (heads * HEAD_MULTIPLE):
            raise ModelNotLowerable(
                f"{config.name}: num_attention_heads is {heads} for {hidden} elements; a head must have a multiple of "
                f"{HEAD_MULTIPLE}"
            )
        local = config.integer("local_attention", 2, _MAX_POSITIONS, 128)
        bases = {kind: _rotary_base(config, kind) for kind in _LAYER_TYPES}
        windows = {"full_attention": 0, "sliding_attention": local // 2}
        return ModernBertShape(
            layers=tuple(ModernBertLayer(windows[kind], bases[kind]) for kind in _layer_types(config)),
            heads=heads,
            hidden=hidden,
            inner=config.integer("intermediate_size", 1, _MAX_WIDTH),
            max_tokens=min(max_tokens, config.integer("max_position_embeddings", 1, _MAX_POSITIONS)),
            norm_epsilon=config.number("norm_eps", 1e-12, 1e-2, 1e-5),
            activation=activation,
        )


def _layer_types(config: Settings) -> list[str]:
    count = config.integer("num_hidden_layers", 1, _MAX_LAYERS)
    every = config.integer("global_attn_every_n_layers", 1, _MAX_LAYERS, 3)
    found = config.values.get("layer_types")
    if found is None:
        return [_LAYER_TYPES[bool(layer % every)] for layer in range(count)]
    if not isinstance(found, list) or len(found) != count or not all(kind in _LAYER_TYPES for kind in found):
        raise ModelFolderInvalid(f"{config.name}: layer_types must be {count} of {', '.join(_LAYER_TYPES)}")
    return found


def _rotary_base(config: Settings, kind: str) -> float:
    whole = config.number("global_rope_theta", 1, 1e12, 160_000.0)
    older = whole if kind == _LAYER_TYPES[0] else config.number("local_rope_theta", 1, 1e12, 10_000.0)
    rope = config.part("rope_parameters") or config.part("rope_scaling")
    if rope is None:
        return older
    rope = rope.part(kind) or rope
    if (scaling := rope.text("rope_type", "default")) != "default":
        raise ModelNotLowerable(f"{rope.name}: rope_type is {scaling!r}; only default is carried over")
    return rope.number("rope_theta", 1, 1e12, older)


def build_modern_bert_encoder(
    weights: Mapping[str, Floats],
    shape: ModernBertShape,
    precision: WeightPrecision | None,
    pooling: Pooling,
    rows: WeightPrecision = BYTE_ROWS,
) -> onnx.ModelProto:
    """Builds a text encoder; inputs and outputs are those of ``bert_graph.build_encoder``."""
    network = _Network(EncoderBuilder(precision, rows), weights, shape)
    return embedder_model(network.graph, network.hidden(), shape.hidden, pooling, MODERN_BERT)


class _Network:
    def __init__(self, graph: EncoderBuilder, weights: Mapping[str, Floats], shape: ModernBertShape) -> None:
        self.graph = graph
        self._weights = weights
        self._shape = shape
        self._axis = graph.constant("axis", np.array([1], np.int64))
        # A token is a sequence of its own: the operator refuses sequences longer than its tables, as packed texts are.
        self._positions = graph.add("Unsqueeze", ["positions", self._axis], "positions.apart")

    def hidden(self) -> str:
        """Adds the network; returns the normalized vectors of the last layer."""
        words = self.graph.rows_of("input_ids", self._weights["embeddings.tok_embeddings.weight"], "word")
        stream = self._normed(words, "embeddings.norm")
        for number, layer in enumerate(self._shape.layers):
            name = f"layers.{number}"
            normed = stream if number == 0 else self._normed(stream, f"{name}.attn_norm")
            stream = self.graph.add("Add", [stream, self._attention(normed, layer, name)], f"{name}.attended.sum")
            normed = self._normed(stream, f"{name}.mlp_norm")
            stream = self.graph.add("Add", [stream, self._feed_forward(normed, name)], f"{name}.sum")
        return self._normed(stream, "final_norm")

    def _attention(self, rows: str, layer: ModernBertLayer, name: str) -> str:
        graph, shape = self.graph, self._shape
        qkv = self._linear(rows, self._weights[f"{name}.attn.Wqkv.weight"], f"{name}.qkv")
        rotated = self._rotated(qkv, layer.rotary_base, name)
        further = {} if layer.window == 0 else {"window": layer.window}
        attended = graph.add(
            "SequenceAttention",
            [rotated, LENGTHS],
            f"{name}.attended",
            OPS_DOMAIN,
            num_heads=shape.heads,
            scale=(shape.hidden / shape.heads) ** -0.5,
            **further,
        )
        return self._linear(attended, self._weights[f"{name}.attn.Wo.weight"], f"{name}.mixed")

    def _rotated(self, qkv: str, base: float, name: str) -> str:
        """Rotates queries and keys, whose heads lie side by side, and leaves values as they are."""
        graph, shape = self.graph, self._shape
        angles = np.arange(shape.max_tokens)[:, None] * rotary_frequencies(base, shape.hidden // shape.heads // 2)
        tables = [
            graph.constant(f"{function.__name__}.{base:g}", function(angles).astype(np.float32))
            for function in (np.cos, np.sin)
        ]
        ends = [
            graph.constant(f"column.{at}", np.array([at], np.int64)) for at in (0, 2 * shape.hidden, 3 * shape.hidden)
        ]
        both = graph.add("Slice", [qkv, ends[0], ends[1], self._axis], f"{name}.qk")
        values = graph.add("Slice", [qkv, ends[1], ends[2], self._axis], f"{name}.v")
        apart = graph.add("Unsqueeze", [both, self._axis], f"{name}.qk.apart")
        turned = graph.add(
            "RotaryEmbedding",
            [apart, self._positions, *tables],
            f"{name}.qk.turned",
            _ROTARY_DOMAIN,
            num_heads=2 * shape.heads,
        )
        flat = graph.add("Squeeze", [turned, self._axis], f"{name}.qk.flat")
        return graph.add("Concat", [flat, values], f"{name}.qkv.turned", axis=1)

    def _feed_forward(self, rows: str, name: str) -> str:
        graph, inner = self.graph, self._shape.inner
        both = self._weights[f"{name}.mlp.Wi.weight"]
        gelu = self._shape.activation == "gelu"
        active = self._linear(rows, both[:inner], f"{name}.active", gelu)
        if not gelu:
            share = graph.add("Sigmoid", [active], f"{name}.share")
            active = graph.add("Mul", [active, share], f"{name}.silu")
        gate = self._linear(rows, both[inner:], f"{name}.gate")
        gated = graph.add("Mul", [active, gate], f"{name}.gated")
        return self._linear(gated, self._weights[f"{name}.mlp.Wo.weight"], f"{name}.narrowed")

    def _normed(self, rows: str, part: str) -> str:
        scale = self.graph.constant(f"{part}.weight", self._weights[f"{part}.weight"])
        bias = self.graph.constant("norm.bias", np.zeros(self._shape.hidden, np.float32))
        return self.graph.add(
            "SkipLayerNormalization",
            [rows, scale, bias],
            f"{part}.normed",
            OPS_DOMAIN,
            epsilon=self._shape.norm_epsilon,
        )

    def _linear(self, rows: str, weight: Floats, name: str, gelu: bool = False) -> str:
        return self.graph.linear(rows, weight.T, np.zeros(len(weight), np.float32), name, gelu)
