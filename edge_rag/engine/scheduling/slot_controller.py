"""A controller with hysteresis: moves the number of slots so that a step takes a target time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from edge_rag.errors import ConfigurationError

WINDOW: Final = 32
"""Steps whose mean is one measurement."""

TOO_SLOW: Final = 1.05
"""Ratio to the target above which there are too many slots."""

FAST_ENOUGH: Final = 0.9
"""Ratio to the target below which there may be more slots."""

CHANGED: Final = 0.8
"""Ratio to the mean since the last move below which the traffic is taken to have changed."""

_SLOW_WINDOWS: Final = 2
_FAST_WINDOWS: Final = 3
_FIRST_HOLD: Final = 8
_LONGEST_HOLD: Final = 512
_REMEMBERED: Final = 64


@dataclass(frozen=True, slots=True)
class SlotChange:
    """A change of the number of slots.

    Attributes:
        before: Slots until now.
        measured_s: Mean time of a step, seconds.
        target_s: Target time of a step, seconds.
    """

    slots: int
    before: int
    reason: str
    measured_s: float
    target_s: float


class SlotController:
    """Moves the slot limit between two bounds. No clock: equal observations give equal limits.

    A step gives every decoding sequence one token, so its time is the time per output token of all of them. The limit
    falls when the means of two windows are above the target, in proportion but at most by half. It rises by one when
    three windows were below the target while requests waited for a slot, by a quarter when far below. In between it
    stays.

    If the target lies between the times of n and n + 1 slots, this rule would oscillate. So a number that was too slow
    is not tried again for a hold time, which doubles with every failure, unless steps have become much faster since:
    then the traffic has changed.

    Args:
        target_s: Target time of a step, seconds, more than 0.
        lowest: Fewest slots, at least 1.
    """

    def __init__(self, target_s: float, lowest: int, highest: int) -> None:
        if target_s <= 0 or not 1 <= lowest <= highest:
            raise ConfigurationError(f"no slot limit from {lowest} to {highest} can aim at {target_s} s a step")
        self._target_s = target_s
        self._lowest = lowest
        self._highest = highest
        self._slots = highest
        self._times: list[float] = []
        self._most_decodes = 0
        self._demand = True
        self._slow = self._fast = 0
        self._refused: int | None = None
        self._hold = _FIRST_HOLD
        self._held = 0
        self._since_move: list[float] = []
        self._changed = 0

    @property
    def slots(self) -> int:
        return self._slots

    def observe(self, step_s: float, decodes: int, waiting: int) -> SlotChange | None:
        """Takes the measurement of a step.

        Args:
            step_s: Its time, seconds.
            waiting: Requests without a slot.

        Returns:
            The change, or None. Steps without decodes, and those with more decodes than slots, are not counted.
        """
        if not 0 < decodes <= self._slots:
            return None
        self._times.append(step_s)
        self._most_decodes = max(self._most_decodes, decodes)
        self._demand &= waiting > 0
        if len(self._times) < WINDOW:
            return None
        mean, decodes, demand = sum(self._times) / WINDOW, self._most_decodes, self._demand
        self._times.clear()
        self._most_decodes, self._demand = 0, True
        return self._decide(mean, decodes, demand)

    def _decide(self, mean_s: float, decodes: int, demand: bool) -> SlotChange | None:
        self._held += 1
        usual = sum(self._since_move) / len(self._since_move) if self._since_move else mean_s
        self._changed = self._changed + 1 if mean_s < CHANGED * usual else 0
        if self._changed >= _FAST_WINDOWS:
            self._refused, self._hold = None, _FIRST_HOLD
        elif not self._changed:
            self._since_move = [*self._since_move[1 - _REMEMBERED :], mean_s]
        self._slow = self._slow + 1 if mean_s > TOO_SLOW * self._target_s else 0
        self._fast = self._fast + 1 if mean_s < FAST_ENOUGH * self._target_s and demand else 0
        if self._slow >= _SLOW_WINDOWS and decodes > self._lowest:
            self._hold = min(2 * self._hold, _LONGEST_HOLD) if self._refused == decodes else _FIRST_HOLD
            self._refused = decodes
            fewer = min(decodes - 1, round(decodes * self._target_s / mean_s))
            return self._move(max(self._lowest, decodes // 2, fewer), "steps take longer than the target", mean_s)
        if self._fast >= _FAST_WINDOWS and self._slots < self._highest:
            more = self._slots + (max(1, self._slots // 4) if mean_s < self._target_s / 2 else 1)
            more = min(more, self._highest)
            if self._refused is not None and more >= self._refused and self._held < self._hold:
                more = self._refused - 1
            if more > self._slots:
                return self._move(more, "steps are shorter than the target and requests wait", mean_s)
        return None

    def _move(self, slots: int, reason: str, mean_s: float) -> SlotChange:
        change = SlotChange(slots, self._slots, reason, mean_s, self._target_s)
        self._slots = slots
        self._slow = self._fast = self._held = 0
        self._since_move = []
        self._changed = 0
        return change
