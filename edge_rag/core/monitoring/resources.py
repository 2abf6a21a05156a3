"""What a daemon's memory was planned for when it was started.

How short memory is, and what is given up for it.

How warm the board is, and how much the daemon does on one that suffers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


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
class MemoryPlanReport:
    """What the memory is used for.

    Attributes:
        budget_bytes: What could be had.
        items: Every use, the KV pages last.
        shrink_steps: How many times slots, steps and batches were halved to fit.
    """

    budget_bytes: int
    items: tuple[MemoryItem, ...]
    shrink_steps: int

    @property
    def planned_bytes(self) -> int:
        """All uses together."""
        return sum(item.bytes for item in self.items)


class ShedTarget(Enum):
    """What is given up while memory is short, first what goes first."""

    PREFIX_CACHE = "prefix cache"
    BATCH = "batch requests"
    ARENAS = "encoder arenas"


@dataclass(frozen=True, slots=True)
class MemoryPressureState:
    """How short memory is.

    Attributes:
        headroom_bytes: What can still be taken; None before the first look, and where nobody looks.
        waiting: Share of the last 10 seconds in which something waited for memory, 0 to 1; None where the kernel does
            not say.
        shed: What is given up, first what went first.
    """

    headroom_bytes: int | None = None
    waiting: float | None = None
    shed: tuple[ShedTarget, ...] = ()


@dataclass(frozen=True, slots=True)
class Temperature:
    """A thermal zone at one moment.

    Attributes:
        zone: Its name, as the board gives it.
        celsius: Its temperature.
    """

    zone: str
    celsius: float


class ThrottleCause(Enum):
    """What holds the daemon back."""

    HEAT = "heat"
    POWER = "power"


@dataclass(frozen=True, slots=True)
class Throttling:
    """How much the daemon does on a board that suffers.

    Attributes:
        share: Share of slots, of a step's tokens and of the time that may be used, above 0 to 1; 1 holds nothing back.
        causes: What holds it back.
        slowdowns: What slows the board down on its own, in words.
        watts: What the board takes; None where it does not measure it.
        joules_per_token: Energy for a generated token over the last seconds; None likewise, or where none came.
        joules: Energy taken since the daemon was started; None where the board does not measure it.
    """

    share: float = 1.0
    causes: tuple[ThrottleCause, ...] = ()
    slowdowns: tuple[str, ...] = ()
    watts: float | None = None
    joules_per_token: float | None = None
    joules: float | None = None
