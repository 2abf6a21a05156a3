"""Random sequences that grow step by step over one set of pages."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Pages = NDArray[np.int8]


@dataclass(frozen=True)
class Heads:
    """The sizes of an attention layer."""

    query_heads: int = 4
    kv_heads: int = 2
    head_size: int = 64
    rotary_pairs: int = 32
    page_tokens: int = 32
    packed: bool = True
    scale: float = 0.125
    window: int = -1
    softcap: float = 0.0

    @property
    def page_bytes(self) -> int:
        return 2 * self.kv_heads * self.page_tokens * (self.head_size + 4)


@dataclass
class Step:
    """One call of the op; arrays are free to be changed by a test that wants them wrong."""

    query: Floats  # [T, HQ, D]
    key: Floats  # [T, HK, D]
    value: Floats
    cos: Floats
    sin: Floats
    positions: NDArray[np.int32]
    slot_mapping: NDArray[np.int32]
    cumulative_sequence_lengths: NDArray[np.int32]
    block_table: NDArray[np.int32]
    replace: dict[str, NDArray[np.generic]] = field(default_factory=dict)  # feeds that are put in as they are


def rotary_tables(positions: int, pairs: int) -> tuple[Floats, Floats]:
    angles = np.arange(positions)[:, None] * 10_000.0 ** (-np.arange(pairs) / max(pairs, 1))
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


@dataclass
class Conversation:
    """Sequences that grow step by step over one set of pages, and everything that was ever fed to them."""

    heads: Heads
    tables: NDArray[np.int32]  # [S, pages]
    pages: Pages
    rng: np.random.Generator
    cos: Floats
    sin: Floats
    lengths: list[int]
    keys: list[list[Floats]]
    values: list[list[Floats]]

    @classmethod
    def start(cls, heads: Heads, sequences: int, context: int, seed: int) -> Conversation:
        rng = np.random.default_rng(seed)
        width = -(-context // heads.page_tokens)
        count = sequences * width + 3
        tables = rng.permutation(count)[: sequences * width].reshape(sequences, width).astype(np.int32)
        cos, sin = rotary_tables(context, heads.rotary_pairs)
        pages = rng.integers(-128, 128, (count, heads.page_bytes), np.int8)  # what a freed page may hold
        empty: list[list[Floats]] = [[] for _ in range(sequences)]
        return cls(heads, tables, pages, rng, cos, sin, [0] * sequences, empty, [[] for _ in range(sequences)])

    def step(self, counts: dict[int, int]) -> Step:
        """Makes the step that gives each named sequence so many more tokens."""
        heads = self.heads
        shape = (sum(counts.values()), heads.kv_heads, heads.head_size)
        key, value = (self.rng.normal(size=shape).astype(np.float32) for _ in range(2))
        query = self.rng.normal(size=(shape[0], heads.query_heads, heads.head_size)).astype(np.float32)
        positions, slots, at = [], [], 0
        for sequence, count in counts.items():
            order = np.arange(self.lengths[sequence], self.lengths[sequence] + count)
            positions.append(order)
            page = self.tables[sequence, order // heads.page_tokens]
            slots.append(page * heads.page_tokens + order % heads.page_tokens)
            self.keys[sequence] += list(key[at : at + count])
            self.values[sequence] += list(value[at : at + count])
            self.lengths[sequence] += count
            at += count
        return Step(
            query,
            key,
            value,
            self.cos,
            self.sin,
            np.concatenate(positions).astype(np.int32),
            np.concatenate(slots).astype(np.int32),
            np.cumsum([0, *counts.values()]).astype(np.int32),
            self.tables[list(counts)],
        )
