"""What a daemon's memory was planned for when it was started."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MemoryItem:
    """A use of memory.

    Attributes:
        name: What it is for.
        bytes: Most that it takes.
        detail: How that comes about, for people.
    """

    name: str
    bytes: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class PlannedMemory:
    """What the memory is used for.

    Attributes:
        budget_bytes: What could be had.
        items: Every use, the KV pages last.
        halvings: How many times slots, steps and batches were halved to fit.
    """

    budget_bytes: int
    items: tuple[MemoryItem, ...]
    halvings: int

    @property
    def planned_bytes(self) -> int:
        """All uses together."""
        return sum(item.bytes for item in self.items)
