"""A step controller with hysteresis: restricts quickly under load, recovers slowly."""

from __future__ import annotations

from enum import Enum
from typing import Final

HIGH_READINGS: Final = 2
"""Consecutive high readings before the next step."""

MIN_LOW_READINGS: Final = 5
"""Consecutive low readings before a step back."""

MAX_LOW_READINGS: Final = 640
"""The same after failed recoveries, at most."""

_RESET_READINGS: Final = 160


class LoadLevel(Enum):
    """A reading. EXTREME: restrict by two steps. HIGH: restrict. NORMAL: no change. LOW: recover."""

    EXTREME = "extreme"
    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


class HysteresisController:
    """Steps from 0, no restriction, to ``max_step``. No clock: equal readings give equal steps.

    One step up after two consecutive high readings, two steps at once after an extreme one. One step down after several
    consecutive low readings.

    If one step is too much load and the next one little, these rules alone would oscillate. So if a step that was
    just recovered turns out to be too much, the number of low readings before the next recovery doubles, up to
    ``MAX_LOW_READINGS``. It is reset after many low readings at step 0.
    """

    def __init__(self, max_step: int) -> None:
        self._max_step = max_step
        self._step = 0
        self._high = self._low = self._unrestricted = 0
        self._low_readings = MIN_LOW_READINGS
        self._recovered: int | None = None

    @property
    def step(self) -> int:
        return self._step

    def observe(self, level: LoadLevel) -> int:
        """Takes a reading and returns the new step."""
        self._high = self._high + 1 if level in (LoadLevel.HIGH, LoadLevel.EXTREME) else 0
        self._low = self._low + 1 if level is LoadLevel.LOW else 0
        self._unrestricted = self._unrestricted + 1 if self._step == 0 and level is LoadLevel.LOW else 0
        if self._unrestricted >= _RESET_READINGS:
            self._low_readings, self._recovered = MIN_LOW_READINGS, None
        if level is LoadLevel.EXTREME:
            self._restrict(2)
        elif self._high >= HIGH_READINGS:
            self._restrict(1)
        elif self._low >= self._low_readings and self._step > 0:
            self._step -= 1
            self._recovered = self._step
            self._low = 0
        return self._step

    def _restrict(self, steps: int) -> None:
        if self._step == self._max_step:
            return
        if self._recovered is not None and self._step <= self._recovered:
            self._low_readings = min(2 * self._low_readings, MAX_LOW_READINGS)
        self._recovered = None
        self._step = min(self._max_step, self._step + steps)
        self._high = 0
