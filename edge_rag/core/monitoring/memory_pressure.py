"""How short memory is, and what is given up for it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Ballast(Enum):
    """What is given up while memory is short, first what goes first."""

    PREFIX_CACHE = "prefix cache"
    BATCH = "batch requests"
    ARENAS = "encoder arenas"


@dataclass(frozen=True, slots=True)
class MemoryPressure:
    """How short memory is.

    Attributes:
        headroom_bytes: What can still be taken; None before the first look, and where nobody looks.
        waiting: Share of the last 10 seconds in which something waited for memory, 0 to 1; None where the kernel does
            not say.
        given_up: What is given up, first what went first.
    """

    headroom_bytes: int | None = None
    waiting: float | None = None
    given_up: tuple[Ballast, ...] = ()
