"""How much may run on a board that is hot or draws too much power; pure.

Readings are compared with thresholds, which gives a load level for heat and one for power. A hysteresis controller for
each turns the levels into steps, and the larger step decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log
from typing import Final

from edge_rag.core.monitoring.resources import ThrottleCause
from edge_rag.device.facts import ThermalZone
from edge_rag.throttle.hysteresis import HysteresisController, LoadLevel

_BELOW_PASSIVE_C: Final = 2.0
"""Distance below the kernel's passive trip point at which throttling starts, degrees Celsius."""

_EXTREME_C: Final = 8.0
"""Distance above the limit from which heat is extreme, degrees Celsius."""

_BELOW_CRITICAL_C: Final = 5.0
"""Distance below the kernel's critical trip point from which heat is extreme, degrees Celsius."""

_LOW_POWER: Final = 0.85
"""Share of the power budget below which the load level is low."""

PER_STEP: Final = 0.75
"""Factor on the share for each step."""


@dataclass(frozen=True, slots=True)
class HeatThresholds:
    """When a board is hot.

    Attributes:
        margin_c: Distance below the limit from which a zone is cool, degrees Celsius, above 0.
    """

    throttle_c: float
    margin_c: float


@dataclass(frozen=True, slots=True)
class HottestZone:
    """The zone nearest to its limit, or farthest above it."""

    zone: ThermalZone
    limit_c: float


def hottest(zones: Sequence[ThermalZone], thresholds: HeatThresholds) -> HottestZone | None:
    """Returns the zone that decides; None without zones."""
    limits = [HottestZone(zone, _limit(zone, thresholds)) for zone in zones]
    return max(limits, key=lambda each: each.zone.celsius - each.limit_c, default=None)


def heat_level(zone: HottestZone | None, slowed_down: bool, thresholds: HeatThresholds) -> LoadLevel:
    """Returns the load level of heat."""
    if zone is None:
        return LoadLevel.HIGH if slowed_down else LoadLevel.LOW
    celsius, critical = zone.zone.celsius, zone.zone.critical_celsius
    if celsius > zone.limit_c + _EXTREME_C or (critical is not None and celsius > critical - _BELOW_CRITICAL_C):
        return LoadLevel.EXTREME
    if celsius > zone.limit_c or slowed_down:
        return LoadLevel.HIGH
    return LoadLevel.LOW if celsius < zone.limit_c - thresholds.margin_c else LoadLevel.NORMAL


def power_level(watts: float | None, budget_watts: float) -> LoadLevel:
    """Returns the load level of power; LOW if it is not measured."""
    if watts is None or watts < _LOW_POWER * budget_watts:
        return LoadLevel.LOW
    return LoadLevel.HIGH if watts > budget_watts else LoadLevel.NORMAL


def _limit(zone: ThermalZone, thresholds: HeatThresholds) -> float:
    if zone.passive_celsius is None:
        return thresholds.throttle_c
    return min(thresholds.throttle_c, zone.passive_celsius - _BELOW_PASSIVE_C)


@dataclass(frozen=True, slots=True)
class BoardReading:
    """Readings of the board's sensors.

    Attributes:
        watts: Power; None if it is not measured.
    """

    zones: Sequence[ThermalZone]
    slowdowns: tuple[str, ...]
    watts: float | None


@dataclass(frozen=True, slots=True)
class ThrottleChange:
    """A change of the share."""

    cause: ThrottleCause
    share: float
    before: float
    reason: str
    numbers: Mapping[str, float]


class ThrottlePolicy:
    """Decides how much may run. No clock, no I/O: equal readings give equal shares.

    Args:
        min_share: Lower limit of the share, above 0 to 1.
        heat: When the board is hot; None to ignore heat.
        budget_watts: Power budget; None without one.
    """

    def __init__(self, min_share: float, heat: HeatThresholds | None, budget_watts: float | None) -> None:
        max_step = ceil(log(min_share) / log(PER_STEP) - 1e-9)
        self._min_share = min_share
        self._heat = heat
        self._budget_watts = budget_watts
        self._controllers = {cause: HysteresisController(max_step) for cause in ThrottleCause}

    @property
    def share(self) -> float:
        """Share of slots and of a step's tokens that may be used, ``min_share`` to 1."""
        return max(self._min_share, PER_STEP ** max(each.step for each in self._controllers.values()))

    @property
    def causes(self) -> tuple[ThrottleCause, ...]:
        return tuple(cause for cause, controller in self._controllers.items() if controller.step)

    def observe(self, reading: BoardReading) -> tuple[ThrottleChange, ...]:
        """Takes a reading; returns the changes, in order."""
        levels: list[tuple[ThrottleCause, LoadLevel, dict[str, float]]] = []
        if (thresholds := self._heat) is not None:
            zone = hottest(reading.zones, thresholds)
            numbers = {"slowdowns": float(len(reading.slowdowns))}
            if zone is not None:
                numbers |= {"celsius": zone.zone.celsius, "limit_celsius": zone.limit_c}
            levels.append((ThrottleCause.HEAT, heat_level(zone, bool(reading.slowdowns), thresholds), numbers))
        if (budget := self._budget_watts) is not None:
            numbers = {"budget_watts": budget} | ({} if reading.watts is None else {"watts": reading.watts})
            levels.append((ThrottleCause.POWER, power_level(reading.watts, budget), numbers))
        changes = []
        for cause, level, numbers in levels:
            controller, before = self._controllers[cause], self.share
            step = controller.step
            if (now := controller.observe(level)) != step:
                changes.append(ThrottleChange(cause, self.share, before, _REASONS[cause][now > step], numbers))
        return tuple(changes)


_REASONS: Final = {
    ThrottleCause.HEAT: ("the board has cooled down", "the board is too hot"),
    ThrottleCause.POWER: ("the board draws less power than its budget", "the board draws more power than its budget"),
}
