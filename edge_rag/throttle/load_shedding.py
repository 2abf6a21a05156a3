"""What is given up while memory is short, in order, and taken up again: a pure policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from edge_rag.core.monitoring.resources import ShedTarget
from edge_rag.throttle.hysteresis import HysteresisController, LoadLevel
from edge_rag.throttle.sensors import MemoryReading

_RESERVE_SHARE: Final = 0.05
_LEAST_RESERVE_BYTES: Final = 32 << 20
"""More than an encoder's or the generator's first run takes at once, measured as 18 MiB with the default models."""

_MOST_RESERVE_BYTES: Final = 256 << 20
_PRESSED_PERCENT: Final = 10.0
_STALLED_PERCENT: Final = 5.0
_CALM_PERCENT: Final = 2.0


@dataclass(frozen=True, slots=True)
class ShedChange:
    """Something is given up, or not any more.

    Attributes:
        ballast: What.
        shed: Whether it is given up from now on.
        numbers: What it was decided on; units are in the names.
    """

    ballast: ShedTarget
    shed: bool
    numbers: Mapping[str, float]


def shortage(reading: MemoryReading) -> LoadLevel:
    """Returns how short memory is.

    Too short is less headroom than a twentieth of what there could be, 32 to 256 MiB, or a tenth of the time spent
    waiting for memory; extremely short is a quarter of that headroom, or everything standing still for a twentieth of
    the time. It is plentiful again at twice the headroom.
    """
    reserve = min(_MOST_RESERVE_BYTES, max(_LEAST_RESERVE_BYTES, reading.board_bytes * _RESERVE_SHARE))
    some, full = reading.some_percent or 0.0, reading.full_percent or 0.0
    if reading.headroom_bytes < reserve / 4 or full > _STALLED_PERCENT:
        return LoadLevel.EXTREME
    if reading.headroom_bytes < reserve or some > _PRESSED_PERCENT:
        return LoadLevel.TOO_MUCH
    calm = reading.headroom_bytes > 2 * reserve and some < _CALM_PERCENT
    return LoadLevel.LITTLE if calm else LoadLevel.BEARABLE


class Shedding:
    """Decides what is given up. No clock, no I/O: equal readings give equal decisions."""

    def __init__(self) -> None:
        self._lever = HysteresisController(len(ShedTarget))

    @property
    def shed(self) -> tuple[ShedTarget, ...]:
        """What is given up now, first what goes first."""
        return tuple(ShedTarget)[: self._lever.notch]

    def observe(self, reading: MemoryReading) -> tuple[ShedChange, ...]:
        """Takes a reading; returns what changes, in the order in which it is to be done."""
        before = self._lever.notch
        now = self._lever.observe(shortage(reading))
        numbers: dict[str, float] = {"headroom_bytes": reading.headroom_bytes, "board_bytes": reading.board_bytes}
        if reading.some_percent is not None:
            numbers["waiting_percent"] = reading.some_percent
        if reading.full_percent is not None:
            numbers["stalled_percent"] = reading.full_percent
        order = tuple(ShedTarget)
        if now > before:
            return tuple(ShedChange(each, True, numbers) for each in order[before:now])
        return tuple(ShedChange(each, False, numbers) for each in reversed(order[now:before]))
