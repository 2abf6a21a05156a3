"""What the op computes, in numpy: the store to the last bit, the attention in float64."""

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.unit.ops.attention_case import Conversation, Floats, Heads, Pages, Step


def _rotate(rows: Floats, cos: Floats, sin: Floats, positions: NDArray[np.int32]) -> Floats:
    pairs = cos.shape[1]
    c, s = cos[positions][:, None], sin[positions][:, None]
    first, second = rows[..., :pairs], rows[..., pairs : 2 * pairs]
    turned = [first * c - second * s, second * c + first * s, rows[..., 2 * pairs :]]
    return np.concatenate(turned, axis=-1)


def _quantize(rows: Floats) -> tuple[NDArray[np.int8], Floats]:
    largest = np.abs(rows).max(axis=-1)
    return np.rint(rows * (np.float32(127) / largest)[..., None]).astype(np.int8), largest / np.float32(127)


@dataclass(frozen=True)
class Stored:
    """Pages taken apart: int8 [pages, kv heads, tokens, head size] and float32 [pages, kv heads, tokens]."""

    key: NDArray[np.int8]
    key_scale: Floats
    value: NDArray[np.int8]
    value_scale: Floats


def take_apart(heads: Heads, pages: Pages) -> Stored:
    tokens, size = heads.page_tokens, heads.head_size
    blocks = pages.reshape(len(pages), heads.kv_heads, -1)
    ends = np.cumsum([size * tokens, 4 * tokens, size * tokens, 4 * tokens])
    key, key_scale, value, value_scale = np.split(blocks, ends[:-1], axis=2)
    fours = (*key.shape[:2], size // 4, tokens, 4), (*value.shape[:2], tokens // 4, size, 4)
    return Stored(
        (key.reshape(fours[0]).swapaxes(2, 3).reshape(*key.shape[:2], tokens, size) ^ -128),  # stored 128 above
        np.ascontiguousarray(key_scale).view(np.float32),
        value.reshape(fours[1]).swapaxes(3, 4).reshape(*value.shape[:2], tokens, size),
        np.ascontiguousarray(value_scale).view(np.float32),
    )


def expected_store(step: Step) -> tuple[NDArray[np.int8], Floats, NDArray[np.int8], Floats]:
    return (*_quantize(_rotate(step.key, step.cos, step.sin, step.positions)), *_quantize(step.value))


def first_seen(heads: Heads, position: int) -> int:
    return 0 if heads.window < 0 else max(0, position + 1 - heads.window)


def _attend(heads: Heads, step: Step, keys: list[NDArray[np.float64]], values: list[NDArray[np.float64]]) -> Floats:
    """float64 attention; keys and values are [context, kv heads, D] for each sequence of the step."""
    query = _rotate(step.query, step.cos, step.sin, step.positions).astype(np.float64)
    group = heads.query_heads // heads.kv_heads
    output = np.zeros_like(query)
    bounds = step.cumulative_sequence_lengths
    for sequence, (begin, end) in enumerate(itertools.pairwise(bounds)):
        for token in range(begin, end):
            seen = slice(first_seen(heads, step.positions[token]), step.positions[token] + 1)
            grouped = query[token].reshape(heads.kv_heads, group, heads.head_size)
            scores = heads.scale * np.einsum("kgd,nkd->kgn", grouped, keys[sequence][seen])
            if heads.softcap:
                scores = heads.softcap * np.tanh(scores / heads.softcap)
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            weights /= weights.sum(axis=-1, keepdims=True)
            output[token] = np.einsum("kgn,nkd->kgd", weights, values[sequence][seen]).reshape(query[token].shape)
    return output.reshape(len(query), -1).astype(np.float32)


def attention_over_pages(heads: Heads, step: Step, pages: Pages, magnitudes: bool = False) -> Floats:
    """Attention over what the pages hold, in float64; or over the magnitudes of the values, which do not cancel out."""
    stored = take_apart(heads, pages)
    with np.errstate(invalid="ignore"):  # slots that nobody has written may hold any scale
        key = stored.key.astype(np.float64) * stored.key_scale[..., None]
        value = stored.value.astype(np.float64) * stored.value_scale[..., None]
    if magnitudes:
        value = np.abs(value)

    def rows(array: NDArray[np.float64], sequence: int) -> NDArray[np.float64]:
        ordered: NDArray[np.float64] = array[step.block_table[sequence]].transpose(0, 2, 1, 3)
        return ordered.reshape(-1, heads.kv_heads, heads.head_size)

    sequences = range(len(step.block_table))
    return _attend(heads, step, [rows(key, s) for s in sequences], [rows(value, s) for s in sequences])


def unquantized_attention(conversation: Conversation, step: Step, sequences: list[int]) -> Floats:
    keys, values = [], []
    for sequence in sequences:
        order = np.arange(conversation.lengths[sequence], dtype=np.int32)
        keys.append(_rotate(np.array(conversation.keys[sequence]), step.cos, step.sin, order).astype(np.float64))
        values.append(np.array(conversation.values[sequence], np.float64))
    return _attend(conversation.heads, step, keys, values)
