"""Computes encoders in float32 with NumPy, one layer's weights in memory at a time, to compare converted models with.

It shares nothing with the graphs but the names of the weights: no operators, no packing, no rounding of activations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edge_rag.runtime.encoder.bert_graph import BertShape, Pooling
from edge_rag.runtime.encoder.modern_bert_graph import ModernBertShape
from edge_rag.runtime.lowering.rotary import rotary_frequencies

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]

# Abramowitz and Stegun, Handbook of Mathematical Functions (1964), 7.1.26; its error is at most 1.5e-7.
_ERF_SLOPE: Final = 0.3275911
_ERF_TERMS: Final = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)


def reference_hidden(
    shape: BertShape, weights: Mapping[str, Floats], texts: Sequence[Ids], types: Sequence[Ids]
) -> list[Floats]:
    """Returns the output of the last layer for each token of each text, float32 [tokens, hidden].

    Args:
        texts: Token ids, at least one each.
        types: Token types of each text; not read where the model has only one.
    """
    ends = np.cumsum([len(text) for text in texts])[:-1]
    positions = np.concatenate([np.arange(len(text)) for text in texts]) + shape.first_position
    kinds = weights["embeddings.token_type_embeddings.weight"]
    hidden = (
        weights["embeddings.word_embeddings.weight"][np.concatenate(texts)]
        + weights["embeddings.position_embeddings.weight"][positions]
        + (kinds[np.concatenate(types)] if len(kinds) > 1 else kinds[0])
    )
    hidden = _normed(hidden, weights, "embeddings.LayerNorm", shape.norm_epsilon)
    for number in range(shape.layers):
        layer = f"encoder.layer.{number}"
        projected = [_linear(hidden, weights, f"{layer}.attention.self.{part}") for part in ("query", "key", "value")]
        by_text = zip(*(np.split(part, ends) for part in projected), strict=True)
        attended = np.concatenate([_attention(q, k, v, shape.heads) for q, k, v in by_text])
        mixed = hidden + _linear(attended, weights, f"{layer}.attention.output.dense")
        mixed = _normed(mixed, weights, f"{layer}.attention.output.LayerNorm", shape.norm_epsilon)
        widened = gelu(_linear(mixed, weights, f"{layer}.intermediate.dense"))
        narrowed = mixed + _linear(widened, weights, f"{layer}.output.dense")
        hidden = _normed(narrowed, weights, f"{layer}.output.LayerNorm", shape.norm_epsilon)
    return np.split(hidden, ends)


def modern_reference_hidden(
    shape: ModernBertShape, weights: Mapping[str, Floats], texts: Sequence[Ids]
) -> list[Floats]:
    """Returns the same of ModernBERT.

    Args:
        texts: Token ids, at least one each.
    """
    ends = np.cumsum([len(text) for text in texts])[:-1]
    positions = np.concatenate([np.arange(len(text)) for text in texts])

    def normed(rows: Floats, name: str) -> Floats:
        return _standardized(rows, shape.norm_epsilon) * weights[f"{name}.weight"]

    stream: Floats = normed(weights["embeddings.tok_embeddings.weight"][np.concatenate(texts)], "embeddings.norm")
    for number, layer in enumerate(shape.layers):
        name = f"layers.{number}"
        rows = stream if number == 0 else normed(stream, f"{name}.attn_norm")
        queries, keys, values = np.split(rows @ weights[f"{name}.attn.Wqkv.weight"].T, 3, axis=1)
        frequencies = rotary_frequencies(layer.rotary_base, shape.hidden // shape.heads // 2)
        turned = (_rotated(each, shape.heads, positions[:, None] * frequencies) for each in (queries, keys))
        by_text = zip(*(np.split(part, ends) for part in (*turned, values)), strict=True)
        attended = np.concatenate([_attention(q, k, v, shape.heads, layer.window) for q, k, v in by_text])
        mixed: Floats = attended @ weights[f"{name}.attn.Wo.weight"].T
        stream = stream + mixed
        active, gate = np.split(normed(stream, f"{name}.mlp_norm") @ weights[f"{name}.mlp.Wi.weight"].T, 2, axis=1)
        activated: Floats = gelu(active) if shape.activation == "gelu" else active / (1 + np.exp(-active))
        narrowed: Floats = (activated * gate) @ weights[f"{name}.mlp.Wo.weight"].T
        stream = stream + narrowed
    return np.split(normed(stream, "final_norm"), ends)


def pooled(hidden: Sequence[Floats], pooling: Pooling) -> Floats:
    """Returns the vector of each text, float32 [texts, hidden], all of unit length."""
    rows = np.stack([each[0] if pooling is Pooling.CLS else each.mean(axis=0) for each in hidden])
    vectors: Floats = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return vectors


def classified(hidden: Sequence[Floats], weights: Mapping[str, Floats]) -> Floats:
    """Returns the scores of each pair, float32 [pairs, labels], by the classifier on its first token."""
    roberta = "classifier.dense.weight" in weights
    dense, last = ("classifier.dense", "classifier.out_proj") if roberta else ("pooler.dense", "classifier")
    first = np.stack([each[0] for each in hidden])
    return _linear(np.tanh(_linear(first, weights, dense)), weights, last)


def gelu(values: Floats) -> Floats:
    """Returns GELU with the error function, element by element."""
    magnitude = np.abs(values) * np.float32(0.5**0.5)
    share = 1 / (1 + np.float32(_ERF_SLOPE) * magnitude)
    series = np.zeros_like(share)
    for term in reversed(_ERF_TERMS):
        series = (series + np.float32(term)) * share
    error = np.copysign(1 - series * np.exp(-np.square(magnitude)), values)
    result: Floats = values * np.float32(0.5) * (1 + error)
    return result


def _attention(queries: Floats, keys: Floats, values: Floats, heads: int, window: int = 0) -> Floats:
    """Returns the attention of one text's tokens to those of their windows, or to all; float32 [tokens, hidden]."""
    tokens, width = queries.shape
    distance = np.abs(np.arange(tokens)[:, None] - np.arange(tokens))
    size = width // heads
    q, k, v = (part.reshape(tokens, heads, size).swapaxes(0, 1) for part in (queries, keys, values))
    result = np.empty((tokens, heads, size), np.float32)
    for head in range(heads):
        scores = q[head] @ k[head].T * np.float32(size**-0.5)
        scores = np.where(distance <= (window or tokens), scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        result[:, head] = weights / weights.sum(axis=1, keepdims=True) @ v[head]
    return result.reshape(tokens, width)


def _linear(rows: Floats, weights: Mapping[str, Floats], name: str) -> Floats:
    product: Floats = rows @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]
    return product


def _rotated(rows: Floats, heads: int, angles: NDArray[np.float64]) -> Floats:
    """Rotates the halves of each head, [tokens, hidden]; angles [tokens, pairs]."""
    cosine, sine = (function(angles)[:, None].astype(np.float32) for function in (np.cos, np.sin))
    first, second = np.split(rows.reshape(len(rows), heads, -1), 2, axis=2)
    turned = np.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=2)
    return turned.reshape(rows.shape)


def _normed(rows: Floats, weights: Mapping[str, Floats], name: str, epsilon: float) -> Floats:
    return _standardized(rows, epsilon) * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def _standardized(rows: Floats, epsilon: float) -> Floats:
    centred = rows - rows.mean(axis=1, keepdims=True)
    standardized: Floats = centred / np.sqrt(np.square(centred).mean(axis=1, keepdims=True) + np.float32(epsilon))
    return standardized
