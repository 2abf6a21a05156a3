"""Which memory is shed under memory pressure, in order, and when it is restored: a pure policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from edge_rag.core.monitoring.resources import ShedTarget
from edge_rag.throttle.hysteresis import HysteresisController, LoadLevel
from edge_rag.throttle.sensors import MemoryReading

_RESERVE_SHARE: Final = 0.05
_MIN_RESERVE_BYTES: Final = 32 << 20
"""More than the first run of an encoder or of the generator allocates at once, measured as 18 MiB with the default
models."""

_MAX_RESERVE_BYTES: Final = 256 << 20
_HIGH_PERCENT: Final = 10.0
_STALLED_PERCENT: Final = 5.0
_LOW_PERCENT: Final = 2.0


@dataclass(frozen=True, slots=True)
class ShedChange:
    """A target is shed or restored.

    Attributes:
        target: The target.
        shed: Whether it is shed from now on.
        numbers: The readings it was based on; units are in the names.
    """

    target: ShedTarget
    shed: bool
    numbers: Mapping[str, float]


def memory_level(reading: MemoryReading) -> LoadLevel:
    """Returns the load level of memory.

    HIGH: the headroom is below the reserve (5% of the board's memory, 32 to 256 MiB), or tasks waited for memory for
    more than 10% of the time. EXTREME: the headroom is below a quarter of the reserve, or all tasks stalled for more
    than 5% of the time. LOW: the headroom is twice the reserve and tasks waited for less than 2% of the time.
    """
    reserve = min(_MAX_RESERVE_BYTES, max(_MIN_RESERVE_BYTES, reading.board_bytes * _RESERVE_SHARE))
    some, full = reading.some_percent or 0.0, reading.full_percent or 0.0
    if reading.headroom_bytes < reserve / 4 or full > _STALLED_PERCENT:
        return LoadLevel.EXTREME
    if reading.headroom_bytes < reserve or some > _HIGH_PERCENT:
        return LoadLevel.HIGH
    low = reading.headroom_bytes > 2 * reserve and some < _LOW_PERCENT
    return LoadLevel.LOW if low else LoadLevel.NORMAL


class ShedPolicy:
    """Decides what is shed. No clock, no I/O: equal readings give equal decisions."""

    def __init__(self) -> None:
        self._controller = HysteresisController(len(ShedTarget))

    @property
    def shed(self) -> tuple[ShedTarget, ...]:
        """The targets shed now, in the order of shedding."""
        return tuple(ShedTarget)[: self._controller.step]

    def observe(self, reading: MemoryReading) -> tuple[ShedChange, ...]:
        """Takes a reading; returns the changes, in the order in which to apply them."""
        before = self._controller.step
        now = self._controller.observe(memory_level(reading))
        numbers: dict[str, float] = {"headroom_bytes": reading.headroom_bytes, "board_bytes": reading.board_bytes}
        if reading.some_percent is not None:
            numbers["waiting_percent"] = reading.some_percent
        if reading.full_percent is not None:
            numbers["stalled_percent"] = reading.full_percent
        order = tuple(ShedTarget)
        if now > before:
            return tuple(ShedChange(each, True, numbers) for each in order[before:now])
        return tuple(ShedChange(each, False, numbers) for each in reversed(order[now:before]))
