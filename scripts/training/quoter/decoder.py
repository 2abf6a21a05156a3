"""The language model as it is trained: Qwen3's layers, with parameters named as Hugging Face names them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from scripts.training.quoter.initialization import initialize

EPSILON = 1e-6
_MASKED = -1e9


@dataclass(frozen=True, slots=True)
class ModelSize:
    """A model's shape. Products' inner sizes are multiples of 128, the block that weights are quantized in.

    Attributes:
        vocabulary: Entries, at most.
        hidden: Width.
        layers: How many.
        heads: Query heads.
        key_value_heads: Key and value heads; divides ``heads``.
        head_size: Of each.
        intermediate: Width between the feed-forward products.
        rope_theta: Base of the rotary frequencies.
        context: Positions, at most.
        looking_layer: Which layer's attention is taught where to look, 0-based.
    """

    vocabulary: int = 8192
    hidden: int = 256
    layers: int = 6
    heads: int = 4
    key_value_heads: int = 2
    head_size: int = 64
    intermediate: int = 512
    rope_theta: float = 500_000.0
    context: int = 2048
    looking_layer: int = 3


class Attention(nn.Module):  # type: ignore[misc]
    """Grouped-query attention with normalized queries and keys."""

    def __init__(self, size: ModelSize) -> None:
        super().__init__()
        self.size = size
        self.q_proj = nn.Linear(size.hidden, size.heads * size.head_size, bias=False)
        self.k_proj = nn.Linear(size.hidden, size.key_value_heads * size.head_size, bias=False)
        self.v_proj = nn.Linear(size.hidden, size.key_value_heads * size.head_size, bias=False)
        self.o_proj = nn.Linear(size.heads * size.head_size, size.hidden, bias=False)
        self.q_norm = nn.RMSNorm(size.head_size, EPSILON)
        self.k_norm = nn.RMSNorm(size.head_size, EPSILON)

    def forward(self, hidden: Tensor, turn: tuple[Tensor, Tensor], mask: Tensor, prefix: int) -> tuple[Tensor, ...]:
        """Returns the output, and the queries' first head a group and the keys, float [rows, groups, columns, head]."""
        rows, columns, _ = hidden.shape
        heads = (rows, columns, -1, self.size.head_size)
        queries = _turned(self.q_norm(self.q_proj(hidden).view(heads).float()), turn).to(hidden.dtype).transpose(1, 2)
        keys = _turned(self.k_norm(self.k_proj(hidden).view(heads).float()), turn).to(hidden.dtype).transpose(1, 2)
        values = self.v_proj(hidden).view(heads).transpose(1, 2)
        group = self.size.heads // self.size.key_value_heads
        all_keys, all_values = keys.repeat_interleave(group, 1), values.repeat_interleave(group, 1)
        # A prefix is plain causal text; only what follows it needs a mask of its own.
        before = functional.scaled_dot_product_attention(
            queries[:, :, :prefix], all_keys[:, :, :prefix], all_values[:, :, :prefix], is_causal=True
        )
        after = functional.scaled_dot_product_attention(queries[:, :, prefix:], all_keys, all_values, attn_mask=mask)
        joined = torch.cat([before, after], 2).transpose(1, 2).reshape(rows, columns, -1)
        return self.o_proj(joined), queries[:, ::group, prefix:], keys


class FeedForward(nn.Module):  # type: ignore[misc]
    """Gated products with SiLU."""

    def __init__(self, size: ModelSize) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(size.hidden, size.intermediate, bias=False)
        self.up_proj = nn.Linear(size.hidden, size.intermediate, bias=False)
        self.down_proj = nn.Linear(size.intermediate, size.hidden, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(hidden)) * self.up_proj(hidden))


class Layer(nn.Module):  # type: ignore[misc]
    """A decoder layer. The residual stream stays in float32; products run in the type of autocast."""

    def __init__(self, size: ModelSize) -> None:
        super().__init__()
        self.self_attn = Attention(size)
        self.mlp = FeedForward(size)
        self.input_layernorm = nn.RMSNorm(size.hidden, EPSILON)
        self.post_attention_layernorm = nn.RMSNorm(size.hidden, EPSILON)

    def forward(self, stream: Tensor, turn: tuple[Tensor, Tensor], mask: Tensor, prefix: int) -> tuple[Tensor, ...]:
        attended, queries, keys = self.self_attn(self.input_layernorm(stream).to(mask.dtype), turn, mask, prefix)
        stream = stream + attended.float()
        return stream + self.mlp(self.post_attention_layernorm(stream).to(mask.dtype)).float(), queries, keys


@dataclass(frozen=True, slots=True)
class Outputs:
    """What the losses are computed from.

    Attributes:
        stream: float32 [rows, columns, hidden], normalized; ``Decoder.logits`` takes rows of it.
        middle: float32, the same shape: the stream before the looking layer.
        queries: The looking layer's, [rows, groups, columns after the prefix, head].
        keys: Likewise, [rows, groups, columns, head].
        mask: Added to the scores of columns after the prefix, [rows, 1, columns after the prefix, columns].
    """

    stream: Tensor
    middle: Tensor
    queries: Tensor
    keys: Tensor
    mask: Tensor


class Decoder(nn.Module):  # type: ignore[misc]
    """The model. Input and output embeddings are one matrix.

    Args:
        size: Its shape.
    """

    def __init__(self, size: ModelSize) -> None:
        super().__init__()
        self.size = size
        self.embed_tokens = nn.Embedding(size.vocabulary, size.hidden)
        self.layers = nn.ModuleList(Layer(size) for _ in range(size.layers))
        self.norm = nn.RMSNorm(size.hidden, EPSILON)
        frequencies = size.rope_theta ** -(torch.arange(0, size.head_size, 2).float() / size.head_size)
        angles = torch.arange(size.context).float()[:, None] * frequencies
        self.register_buffer("cosines", angles.cos(), persistent=False)
        self.register_buffer("sines", angles.sin(), persistent=False)
        initialize(self)

    def forward(self, token_ids: Tensor, positions: Tensor, mask: Tensor, prefix: int) -> Outputs:
        """Runs the model.

        Args:
            token_ids: int64 [rows, columns].
            positions: int64, the same shape, below the context.
            mask: Added to the scores, [rows, 1, columns - prefix, columns], in the type that products run in.
            prefix: Columns that are plain causal text.
        """
        stream = functional.embedding(token_ids, self.embed_tokens.weight)
        turn = (self.cosines[positions][:, :, None], self.sines[positions][:, :, None])
        middle = queries = keys = stream
        for index, layer in enumerate(self.layers):
            if index == self.size.looking_layer:
                middle = stream
                stream, queries, keys = layer(stream, turn, mask, prefix)
            else:
                stream = layer(stream, turn, mask, prefix)[0]
        return Outputs(self.norm(stream), middle, queries, keys, mask)

    def logits(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """Returns float32 [rows, vocabulary] of some rows of the stream, multiplied in ``dtype``."""
        return functional.linear(rows.to(dtype), self.embed_tokens.weight.to(dtype)).float()


def exchange_mask(prefixes: Tensor, segments: Tensor, prefix: int, dtype: torch.dtype) -> Tensor:
    """Lets every exchange see its prefix and itself, and no other.

    Args:
        prefixes: int64 [rows], tokens of each prefix.
        segments: int64 [rows, exchange columns], -1 for filling.
        prefix: Columns before the exchanges.
        dtype: Of the result.

    Returns:
        What is added to scores, [rows, 1, exchange columns, prefix + exchange columns].
    """
    rows, columns = segments.shape
    order = torch.arange(columns, device=segments.device)
    same = (segments[:, :, None] == segments[:, None, :]) & (order[:, None] >= order[None, :])
    sees = torch.arange(prefix, device=segments.device)[None, None, :] < prefixes[:, None, None]
    allowed = torch.cat([sees.expand(rows, columns, prefix), same], 2)
    mask = torch.zeros(allowed.shape, dtype=dtype, device=segments.device)
    return mask.masked_fill(~allowed, _MASKED)[:, None]


def _turned(heads: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    cosines, sines = turn
    first, second = heads.chunk(2, -1)
    return torch.cat([first * cosines - second * sines, second * cosines + first * sines], -1)
