"""A board that gets warm: a modelled temperature, beside the real throttle or without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from edge_rag.device.facts import ThermalZone
from edge_rag.throttle.policy import BoardReading, ThrottlePolicy

LOOK_S: Final = 2.0
"""Interval between two samples of the board, as the daemon's default."""

HEAT_WAVE: Final = ((0.0, 25.0), (300.0, 25.0), (360.0, 55.0), (1200.0, 55.0), (1260.0, 25.0))
"""The air around the box, degrees Celsius by second: warm, hot for a quarter of an hour, warm again."""


@dataclass(frozen=True, slots=True)
class Board:
    """How a board gets warm and what it does about it on its own.

    A first-order model: what it takes warms it, the air cools it. Energy of a step is a part for reading the weights,
    and one for each token computed.

    Attributes:
        idle_w: Power without work.
        step_j: Energy of each step.
        token_j: Energy of each token computed.
        kelvin_per_w: How much warmer than the air a watt makes it in the end.
        tau_s: Time constant.
        slows_at_c: From here on the hardware slows itself down, until 5 degrees below.
        slowdown: By what factor steps take longer then.
    """

    idle_w: float = 3.0
    step_j: float = 0.01
    token_j: float = 0.009
    kelvin_per_w: float = 5.2
    tau_s: float = 60.0
    slows_at_c: float = 90.0
    slowdown: float = 4.0


class WarmBoard:
    """The temperature of a board over time."""

    def __init__(self, board: Board, throttle: ThrottlePolicy | None, set_throttle: Callable[[float], None]) -> None:
        self._board = board
        self._throttle = throttle
        self._set_throttle = set_throttle
        self.now = self._looked = 0.0
        self._slow = False
        self.celsius = HEAT_WAVE[0][1] + board.kelvin_per_w * board.idle_w
        self.hottest_c = self.celsius
        self.slowed_s = 0.0
        self.moves = 0

    @property
    def factor(self) -> float:
        """By what factor steps take longer now."""
        return self._board.slowdown if self._slow else 1.0

    def work(self, seconds: float, tokens: int) -> None:
        self._pass(seconds, self._board.step_j + self._board.token_j * tokens)

    def rest_until(self, now: float) -> None:
        """Nothing is done until then."""
        while self.now < now:
            self._pass(min(LOOK_S, now - self.now), 0.0)

    def _pass(self, seconds: float, joules: float) -> None:
        board = self._board
        watts = board.idle_w + joules / seconds
        tends_to = _air(self.now) + board.kelvin_per_w * watts
        self.celsius += (tends_to - self.celsius) * min(1.0, seconds / board.tau_s)
        self.hottest_c = max(self.hottest_c, self.celsius)
        self.slowed_s += seconds if self._slow else 0.0
        self._slow = self.celsius > board.slows_at_c - (5.0 if self._slow else 0.0)
        self.now += seconds
        if self._throttle is not None and self.now - self._looked >= LOOK_S:
            self._looked = self.now
            zone = ThermalZone("soc", self.celsius, None, None)
            for change in self._throttle.observe(BoardReading((zone,), (), watts)):
                self.moves += 1
                self._set_throttle(change.share)


def _air(now: float) -> float:
    for (start, low), (end, high) in pairwise(HEAT_WAVE):
        if start <= now < end:
            return low + (high - low) * (now - start) / (end - start)
    return HEAT_WAVE[-1][1]
