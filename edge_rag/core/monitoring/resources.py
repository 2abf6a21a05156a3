"""The memory plan, memory pressure, temperature and throttling of a running daemon."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class MemoryItem:
    """A use of memory.

    Attributes:
        name: Its purpose.
        bytes: Most bytes that it takes.
        detail: How the number was computed, for people.
    """

    name: str
    bytes: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class MemoryPlanReport:
    """The memory plan made at the start.

    Attributes:
        budget_bytes: Memory available.
        items: Every use, the KV pages last.
        shrink_steps: How many times slots, steps and batches were halved to fit.
    """

    budget_bytes: int
    items: tuple[MemoryItem, ...]
    shrink_steps: int

    @property
    def planned_bytes(self) -> int:
        """Sum of all uses, bytes."""
        return sum(item.bytes for item in self.items)


class ShedTarget(Enum):
    """Memory users that are shed while memory is short, in order."""

    PREFIX_CACHE = "prefix cache"
    BATCH = "batch requests"
    ARENAS = "encoder arenas"


@dataclass(frozen=True, slots=True)
class MemoryPressureState:
    """How short memory is.

    Attributes:
        headroom_bytes: Memory that can still be taken; None before the first measurement, and if it is not measured.
        waiting: Share of the last 10 seconds in which something waited for memory, 0 to 1; None if the kernel does not
            report it.
        shed: Users that are shed, in order.
    """

    headroom_bytes: int | None = None
    waiting: float | None = None
    shed: tuple[ShedTarget, ...] = ()


@dataclass(frozen=True, slots=True)
class Temperature:
    """Temperature of a thermal zone."""

    zone: str
    celsius: float


class ThrottleCause(Enum):
    """Why the daemon is throttled."""

    HEAT = "heat"
    POWER = "power"


@dataclass(frozen=True, slots=True)
class Throttling:
    """How far the daemon is throttled.

    Attributes:
        share: Share of slots, of a step's tokens and of time that may be used, above 0 to 1; 1 is unthrottled.
        causes: Why it is throttled.
        slowdowns: Throttling that the board reports of itself, in words.
        watts: Power drawn by the board; None if it is not measured.
        joules_per_token: Energy per generated token over the last seconds; None likewise, or without tokens.
        joules: Energy drawn since the start of the daemon; None if it is not measured.
    """

    share: float = 1.0
    causes: tuple[ThrottleCause, ...] = ()
    slowdowns: tuple[str, ...] = ()
    watts: float | None = None
    joules_per_token: float | None = None
    joules: float | None = None


@dataclass(frozen=True, slots=True)
class TokenVectorUse:
    """The size of the file of token vectors.

    Attributes:
        used_bytes: Bytes in use.
        budget_bytes: Most bytes.
    """

    passages: int
    used_bytes: int
    budget_bytes: int


@dataclass(frozen=True, slots=True)
class PassageSources:
    """Passages by where their token vectors came from."""

    cached: int = 0
    kept: int = 0
    encoded: int = 0

    def plus(self, more: PassageSources) -> PassageSources:
        """Returns the sum."""
        return PassageSources(self.cached + more.cached, self.kept + more.kept, self.encoded + more.encoded)
