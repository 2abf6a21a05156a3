"""The tiny models of tests/fixtures, driven as the engine drives them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge_rag.engine.ports import ModelRunner
from edge_rag.runtime.decoder.model_input import PackedStep

FIXTURES = Path(__file__).parents[1] / "fixtures"
FAMILIES = ("tiny-llama", "tiny-qwen2", "tiny-qwen3", "tiny-gemma2")
QUANTIZED = ("tiny-llama-int8", "tiny-qwen2-int4", "tiny-qwen3-int8")

Logits = NDArray[np.float32]
TokenIds = NDArray[np.int64]


@dataclass(frozen=True)
class Reference:
    """A text and Hugging Face's fp32 logits at each of its positions."""

    token_ids: TokenIds  # [n]
    logits: Logits  # [n, vocabulary]


def reference(family: str) -> Reference:
    with np.load(FIXTURES / f"{family}.npz") as stored:
        return Reference(stored["token_ids"], stored["logits"])


@dataclass
class Sequence:
    """One text on its way through the model."""

    token_ids: TokenIds
    pages: NDArray[np.int32]
    done: int = 0


def run(decoder: ModelRunner, parts: list[tuple[Sequence, int]]) -> list[Logits]:
    """Runs one step that gives each sequence its next so many tokens; returns each one's logits, one row a token."""
    width = max(sequence.pages.size for sequence, _ in parts)
    table = np.zeros((len(parts), width), np.int32)
    token_ids, positions, slots = [], [], []
    for row, (sequence, count) in enumerate(parts):
        table[row, : sequence.pages.size] = sequence.pages
        order = np.arange(sequence.done, sequence.done + count, dtype=np.int32)
        token_ids.append(sequence.token_ids[order])
        positions.append(order)
        slots.append(sequence.pages[order // decoder.page_tokens] * decoder.page_tokens + order % decoder.page_tokens)
        sequence.done += count
    bounds = np.cumsum([0, *(count for _, count in parts)]).astype(np.int32)
    step = PackedStep(
        np.concatenate(token_ids),
        np.concatenate(positions),
        np.concatenate(slots).astype(np.int32),
        bounds,
        table,
        np.arange(bounds[-1], dtype=np.int64),
    )
    return np.split(decoder.run(step).copy(), bounds[1:-1])


def pages_for(decoder: ModelRunner, tokens: int) -> int:
    return -(-tokens // decoder.page_tokens)


def position_errors(found: Logits, expected: Logits) -> Logits:
    """Relative error of each position's logits, around their mean: a constant added to all of them changes nothing."""
    scale = np.linalg.norm(expected - expected.mean(axis=1, keepdims=True), axis=1)
    errors: Logits = np.linalg.norm(found - expected, axis=1) / scale
    return errors
