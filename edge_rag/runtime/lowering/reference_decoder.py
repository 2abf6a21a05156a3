"""Computes a decoder in float32 with NumPy, one layer's weights in memory at a time, to compare lowered models with.

It shares nothing with the lowered graph but the description and the order of the weights: no operators, no pages, no
rounding of keys, values or activations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edge_rag.runtime.lowering.decoder_graph import Activation, DecoderDescription, Layer, Rotary

Floats = NDArray[np.float32]

_HEAD_ROWS = 16_384
"""Rows of the head that are multiplied at a time."""


class ReferenceWeights(Protocol):
    """The weights of the original, by the names of ``DecoderWeights``."""

    def has(self, name: str) -> bool:
        """Whether there is a matrix or vector of that name."""
        ...

    def rows(self, name: str, rows: NDArray[np.int64] | slice = slice(None)) -> Floats:
        """Returns rows of a matrix, float32 [rows, inputs]."""
        ...

    def vector(self, name: str) -> Floats:
        """Returns a vector."""
        ...


Observer = Callable[[str, list[Floats]], None]
"""Receives the name of a matrix and its inputs of each text, float32 [tokens, inputs], before they are multiplied; and
under ``N.keys`` the rotated keys of a layer, [heads, tokens, head size]."""


def reference_logits(
    description: DecoderDescription, weights: ReferenceWeights, texts: list[NDArray[np.int64]]
) -> list[Floats]:
    """Returns the logits after each token of each text, float32 [tokens, vocabulary].

    Args:
        texts: Token ids, at least one each.
    """
    return ReferenceDecoder(description, weights).logits(texts)


def observe_inputs(
    description: DecoderDescription, weights: ReferenceWeights, texts: list[NDArray[np.int64]], observe: Observer
) -> None:
    """Runs a decoder on texts, without computing logits, and reports what its matrices are multiplied by.

    Args:
        texts: Token ids, at least one each.
        observe: Receives the inputs of all matrices, last those of the head.
    """
    observe("head", ReferenceDecoder(description, weights, observe).normed(texts))


def _ignored(name: str, inputs: list[Floats]) -> None:
    """Observes nothing."""


class ReferenceDecoder:
    """Runs a decoder on texts."""

    def __init__(
        self, description: DecoderDescription, weights: ReferenceWeights, observe: Observer = _ignored
    ) -> None:
        self._description = description
        self._weights = weights
        self._observe = observe

    def normed(self, texts: list[NDArray[np.int64]]) -> list[Floats]:
        """Returns the inputs of the head, [tokens, width] of each text."""
        found, scale = self._description, np.float32(self._description.embedding_scale)
        streams = [self._weights.rows("embeddings", text) * scale for text in texts]
        for number, layer in enumerate(found.layers):
            streams = self._layer(streams, number, layer)
        return [self._norm(stream, "norm") for stream in streams]

    def _layer(self, streams: list[Floats], number: int, layer: Layer) -> list[Floats]:
        found = self._description
        rotated = [
            (*(self._rotated(each, layer) for each in (queries, keys)), values)
            for queries, keys, values in self._projected(streams, number)
        ]
        self._observe(f"{number}.keys", [keys for _, keys, _ in rotated])
        results = [self.attention(number, queries, keys, values) for queries, keys, values in rotated]
        results = self._added(results, f"{number}.attention_output", f"{number}.attention_output_norm")
        streams = [stream + result for stream, result in zip(streams, results, strict=True)]
        normed = [self._norm(stream, f"{number}.feed_forward_norm") for stream in streams]
        gates, ups = self._products(normed, f"{number}.gate"), self._products(normed, f"{number}.up")
        gated = [_activated(gate, found.activation) * up for gate, up in zip(gates, ups, strict=True)]
        results = self._added(gated, f"{number}.down", f"{number}.feed_forward_output_norm")
        return [stream + result for stream, result in zip(streams, results, strict=True)]

    def logits(self, texts: list[NDArray[np.int64]]) -> list[Floats]:
        """Returns the logits after each token of each text, float32 [tokens, vocabulary]."""
        normed = self.normed(texts)
        head = "head" if self._weights.has("head") else "embeddings"
        size = self._description.vocabulary_size
        found = [np.empty((len(stream), size), np.float32) for stream in normed]
        for first in range(0, size, _HEAD_ROWS):
            part = slice(first, min(first + _HEAD_ROWS, size))
            matrix = self._weights.rows(head, part) * np.float32(self._description.logit_scale)
            for stream, logits in zip(normed, found, strict=True):
                logits[:, part] = stream @ matrix.T
        return found

    def _projected(self, streams: list[Floats], number: int) -> Iterator[tuple[Floats, ...]]:
        """Yields queries, keys and values of each text, [heads, tokens, head size]."""
        found = self._description
        normed = [self._norm(stream, f"{number}.attention_norm") for stream in streams]
        parts: list[list[Floats]] = []
        for part, heads in (("query", found.query_heads), ("key", found.kv_heads), ("value", found.kv_heads)):
            products = [
                product.reshape(-1, heads, found.head_size) for product in self._products(normed, f"{number}.{part}")
            ]
            if found.head_norms and part != "value":
                products = [self._norm(product, f"{number}.{part}_norm") for product in products]
            parts.append([product.swapaxes(0, 1) for product in products])
        yield from zip(*parts, strict=True)

    def _rotated(self, value: Floats, layer: Layer) -> Floats:
        return value if layer.rotary is None else _rotated(value, self._description.rotaries[layer.rotary])

    def attention(self, number: int, queries: Floats, keys: Floats, values: Floats) -> Floats:
        """Attends in a layer, by rotated queries and keys, [heads, tokens, head size]; returns [tokens, width].

        A subclass may alter the keys and values first.
        """
        found, layer = self._description, self._description.layers[number]
        groups = found.query_heads // found.kv_heads
        tokens = queries.shape[1]
        distance = np.arange(tokens)[:, None] - np.arange(tokens)
        seen = (distance >= 0) & (distance < (layer.window or tokens))
        scale = np.float32(found.attention_scale or found.head_size**-0.5)
        result = np.empty((tokens, found.query_heads, found.head_size), np.float32)
        for head in range(found.query_heads):
            scores = queries[head] @ keys[head // groups].T * scale
            scores = np.where(seen, scores, -np.inf)
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            result[:, head] = weights / weights.sum(axis=1, keepdims=True) @ values[head // groups]
        return result.reshape(tokens, -1)

    def _added(self, values: list[Floats], matrix: str, norm: str) -> list[Floats]:
        found = self._description
        results = self._products(values, matrix)
        if found.output_norms:
            results = [self._norm(result, norm) for result in results]
        return [result * np.float32(found.residual_scale) for result in results]

    def _products(self, values: list[Floats], name: str) -> list[Floats]:
        self._observe(name, values)
        matrix = self._weights.rows(name)
        bias = self._weights.vector(f"{name}.bias") if self._weights.has(f"{name}.bias") else np.float32(0)
        return [value @ matrix.T + bias for value in values]

    def _norm(self, value: Floats, name: str) -> Floats:
        mean = np.square(value).mean(axis=-1, keepdims=True, dtype=np.float32)
        normed: Floats = value / np.sqrt(mean + np.float32(self._description.epsilon)) * self._weights.vector(name)
        return normed


def _rotated(value: Floats, rotary: Rotary) -> Floats:
    """Rotates the first pairs of each head, [heads, tokens, head size]."""
    angles = np.arange(value.shape[1])[:, None] * rotary.frequencies
    cosine, sine = ((rotary.magnitude * function(angles)).astype(np.float32) for function in (np.cos, np.sin))
    pairs = rotary.frequencies.size
    first, second, rest = value[..., :pairs], value[..., pairs : 2 * pairs], value[..., 2 * pairs :]
    return np.concatenate([first * cosine - second * sine, second * cosine + first * sine, rest], axis=-1)


def _activated(gate: Floats, activation: Activation) -> Floats:
    if activation is Activation.SILU:
        activated: Floats = gate / (1 + np.exp(-gate))
        return activated
    inner = np.float32((2 / np.pi) ** 0.5) * (gate + np.float32(0.044715) * gate**3)
    tanh: Floats = np.float32(0.5) * gate * (1 + np.tanh(inner))
    return tanh
