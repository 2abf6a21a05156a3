"""A model's weights before its first step: random, but with the beginnings of what quoting needs.

To repeat a text, a head must find where the present token stood before and say what followed it there. That takes two
layers (Olsson et al. 2022, https://arxiv.org/abs/2209.11895): in one a head looks at the token before and notes it, in
a later one a head compares the present token with such notes. Left to chance, a small model finds this late; here both
are laid out, weakly, and trained like everything else. The other heads begin with queries like their keys, so that
equal tokens see each other, and with outputs like their values, so that what is seen is said (Trockman and Kolter 2023,
https://arxiv.org/abs/2305.09828).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from scripts.training.quoter.decoder import Attention, Decoder, ModelSize

_EMBEDDING = 0.05
_COMMON = 0.7
"""Of every embedding, next to what is its own: gives heads something to look by position alone with."""
_LIKENESS = 0.85
_FAST = 0.3
"""How much of queries and keys is left in the components that turn fast with the position."""
_COPY = 0.025
_NOISE = 0.02
_FEED_FORWARD = 0.04
_WRITTEN_DOWN = 0.2
_FASTEST = 3
"""Rotary frequencies, counted from the highest, that tell a token from its neighbours."""
_REPEATING_LAYERS = (1, 2)


@torch.no_grad()  # type: ignore[untyped-decorator]
def initialize(model: Decoder) -> None:
    """Draws a model's weights from torch's global generator."""
    size = model.size
    scale = size.hidden**-0.5
    common = torch.sign(torch.randn(size.hidden))
    nn.init.normal_(model.embed_tokens.weight, std=_EMBEDDING)
    model.embed_tokens.weight.add_(_EMBEDDING * _COMMON * common)
    for layer in model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        for product in (attention.q_proj, attention.k_proj, attention.v_proj, mlp.gate_proj, mlp.up_proj):
            nn.init.normal_(product.weight, std=scale)
        nn.init.normal_(mlp.down_proj.weight, std=_FEED_FORWARD * size.intermediate**-0.5)
        nn.init.normal_(attention.o_proj.weight, std=_NOISE * scale)
        _see_equals(attention, common, size)
    written, read = _look_back(model.layers[0].self_attn, common, size)
    for index in _REPEATING_LAYERS:
        if index < size.layers:
            _find_again(model.layers[index].self_attn, written, read, size)


def _see_equals(attention: Attention, common: Tensor, size: ModelSize) -> None:
    """Likens queries to keys, and outputs to values transposed."""
    group = size.heads // size.key_value_heads
    keys = attention.k_proj.weight.view(size.key_value_heads, 1, size.head_size, size.hidden)
    queries = attention.q_proj.weight.view(size.key_value_heads, group, size.head_size, size.hidden)
    queries.copy_(_LIKENESS * keys + (1 - _LIKENESS**2) ** 0.5 * queries)
    for product in (attention.q_proj, attention.k_proj):
        _without(product.weight, common)
        product.weight.view(-1, size.head_size, size.hidden)[:, ~_slow(size)] *= _FAST
    values = attention.v_proj.weight.view(size.key_value_heads, 1, size.head_size, size.hidden)
    said = values.expand(-1, group, -1, -1).reshape(size.heads * size.head_size, size.hidden)
    attention.o_proj.weight.add_(_COPY * said.T)


def _without(weight: Tensor, common: Tensor) -> None:
    """Takes from what is read the part that all tokens share, which tells none from another."""
    weight.sub_((weight @ common)[:, None] * common / common.square().sum())


def _slow(size: ModelSize) -> Tensor:
    """Which components of a head hardly turn over a prompt's length: what is equal stays so over a distance."""
    return torch.arange(size.head_size) % (size.head_size // 2) >= size.head_size // 4


def _look_back(attention: Attention, common: Tensor, size: ModelSize) -> tuple[Tensor, Tensor]:
    """Has the first head see the token before and write it down in a part of the stream of its own.

    Returns:
        How it is written down, [hidden, head] with orthonormal columns, and how it was read, [head, hidden].
    """
    half = size.head_size // 2
    frequencies = size.rope_theta ** -(torch.arange(half).float() / half)
    by_position = torch.zeros(2, size.head_size)
    fastest = torch.arange(min(_FASTEST, half))
    # Rotated by its position, this query is what the key is at the position before.
    by_position[0, fastest] = torch.cos(frequencies[fastest])
    by_position[0, fastest + half] = -torch.sin(frequencies[fastest])
    by_position[1, fastest] = 1.0
    for product, direction in ((attention.q_proj, by_position[0]), (attention.k_proj, by_position[1])):
        weight = product.weight[: size.head_size]
        weight.mul_(0.1).add_(direction[:, None] * common[None] / size.hidden**0.5)
    read = attention.v_proj.weight[: size.head_size]
    _without(read, common)
    beside = torch.linalg.qr(torch.cat([read.T, torch.randn(size.hidden, size.head_size)], 1)).Q
    written = beside[:, size.head_size :]
    attention.o_proj.weight[:, : size.head_size] = _WRITTEN_DOWN * written
    return written, read.clone()


def _find_again(attention: Attention, written: Tensor, read: Tensor, size: ModelSize) -> None:
    """Has the first group's heads see where the token before, as written down, is the present one."""
    group = size.heads // size.key_value_heads
    kept = _slow(size)[:, None].float()
    attention.k_proj.weight[: size.head_size] = kept * written.T
    for head in range(group):
        attention.q_proj.weight[head * size.head_size : (head + 1) * size.head_size] = kept * read
