"""What is measured: the shapes of two attention layers, in decode and in prefill."""

from __future__ import annotations

from dataclasses import dataclass

PAGE_TOKENS = 32
_SCALE_BYTES = 4
_ROW_DIGITS = 2


@dataclass(frozen=True, slots=True)
class Load:
    """One step of one attention layer.

    Attributes:
        name: What it is called in the table.
        query_heads: Query heads.
        kv_heads: Key and value heads.
        head_size: Elements of a head.
        sequences: Sequences in the step.
        context: Tokens of each sequence, with the step's.
        fresh: Tokens of each sequence that are in the step.
        bits: Of keys and values.
    """

    name: str
    query_heads: int
    kv_heads: int
    head_size: int
    sequences: int
    context: int
    fresh: int
    bits: int = 8

    @property
    def page_bytes(self) -> int:
        """Bytes of a page."""
        return 2 * self.kv_heads * PAGE_TOKENS * (self.head_size + _SCALE_BYTES) * self.bits // 8

    @property
    def bytes(self) -> int:
        """Keys and values of the whole context, queries and outputs: what must be read or written once."""
        kept = 2 * self.kv_heads * (self.head_size + _SCALE_BYTES) * self.bits // 8 * self.context
        columns = 2 * self.query_heads + 2 * self.kv_heads
        return self.sequences * (kept + 4 * self.fresh * columns * self.head_size)

    @property
    def products(self) -> int:
        """INT8 products of scores and outputs, both digits of the rows counted."""
        earlier = self.context - self.fresh
        pairs = self.fresh * earlier + self.fresh * (self.fresh + 1) // 2
        return self.sequences * pairs * self.query_heads * self.head_size * 2 * _ROW_DIGITS


def _of(layer: str, query_heads: int, kv_heads: int, head_size: int, bits: int = 8) -> list[Load]:
    return [
        Load(f"{layer} {name}", query_heads, kv_heads, head_size, sequences, 1024, fresh, bits)
        for name, sequences, fresh in (
            ("decode 8 x 1024", 8, 1),
            ("decode 1 x 1024", 1, 1),
            ("prefill 512 to 1024", 1, 512),
            ("prefill 1024", 1, 1024),
        )
    ]


LOADS = (
    *_of("14/2 x 64", 14, 2, 64),
    *_of("14/2 x 64 INT4", 14, 2, 64, 4),
    *_of("8/8 x 128", 8, 8, 128),
    *_of("8/8 x 128 INT4", 8, 8, 128, 4),
)
