"""How much may run on a board that is hot or takes too much power: several levers, of which the lowest counts.

What readings of the board mean: pure functions from numbers to a burden.
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
"""So much before the kernel slows the board down it is done more gently here."""

_EXTREME_C: Final = 8.0
"""So far above the limit heat is extreme."""

_BELOW_CRITICAL_C: Final = 5.0
"""So near to where the kernel switches the board off it is, too."""

_LITTLE_POWER: Final = 0.85
"""Share of the budget below which more power can be taken."""


@dataclass(frozen=True, slots=True)
class HeatPolicy:
    """When a board is hot.

    Attributes:
        throttle_c: Above this temperature of any zone, degrees Celsius; or above where the kernel would slow the board
            down, if that is lower.
        margin_c: So much below it is no more hot, more than 0.
    """

    throttle_c: float
    margin_c: float


@dataclass(frozen=True, slots=True)
class Hottest:
    """The zone that is nearest to its limit, or farthest above it.

    Attributes:
        zone: It.
        limit_c: Its limit.
    """

    zone: ThermalZone
    limit_c: float


def hottest(zones: Sequence[ThermalZone], policy: HeatPolicy) -> Hottest | None:
    """Returns the zone that matters; None where there are no zones."""
    limits = [Hottest(zone, _limit(zone, policy)) for zone in zones]
    return max(limits, key=lambda each: each.zone.celsius - each.limit_c, default=None)


def heat(zone: Hottest | None, slowed_down: bool, policy: HeatPolicy) -> LoadLevel:
    """Returns how heavy heat weighs.

    Args:
        zone: The zone that matters.
        slowed_down: Whether something slows the board down already.
        policy: When it is hot.
    """
    if zone is None:
        return LoadLevel.TOO_MUCH if slowed_down else LoadLevel.LITTLE
    celsius, critical = zone.zone.celsius, zone.zone.critical_celsius
    if celsius > zone.limit_c + _EXTREME_C or (critical is not None and celsius > critical - _BELOW_CRITICAL_C):
        return LoadLevel.EXTREME
    if celsius > zone.limit_c or slowed_down:
        return LoadLevel.TOO_MUCH
    return LoadLevel.LITTLE if celsius < zone.limit_c - policy.margin_c else LoadLevel.BEARABLE


def power(watts: float | None, budget_watts: float) -> LoadLevel:
    """Returns how heavy the power taken weighs; nothing where it is not measured."""
    if watts is None or watts < _LITTLE_POWER * budget_watts:
        return LoadLevel.LITTLE
    return LoadLevel.TOO_MUCH if watts > budget_watts else LoadLevel.BEARABLE


def _limit(zone: ThermalZone, policy: HeatPolicy) -> float:
    if zone.passive_celsius is None:
        return policy.throttle_c
    return min(policy.throttle_c, zone.passive_celsius - _BELOW_PASSIVE_C)


PER_NOTCH: Final = 0.75
"""What a notch leaves of what the notch above allows."""


@dataclass(frozen=True, slots=True)
class BoardReading:
    """What a look at the board saw.

    Attributes:
        zones: Temperatures.
        slowdowns: What slows it down already, in words.
        watts: What it takes; None where it does not measure it.
    """

    zones: Sequence[ThermalZone]
    slowdowns: tuple[str, ...]
    watts: float | None


@dataclass(frozen=True, slots=True)
class ThrottleChange:
    """A lever was moved.

    Attributes:
        cause: Whose.
        share: What all levers together allow from now on, 0 to 1.
        before: What they allowed until now.
        reason: Why, as a short sentence.
        numbers: What it was decided on; units are in the names.
    """

    cause: ThrottleCause
    share: float
    before: float
    reason: str
    numbers: Mapping[str, float]


class Throttle:
    """Decides how much may run. No clock, no I/O: equal readings give equal shares.

    Args:
        least_share: What is allowed at least, above 0 to 1.
        heat_policy: When the board is hot; None where heat is nobody's business.
        budget_watts: Most power to take; None for no budget.
    """

    def __init__(self, least_share: float, heat_policy: HeatPolicy | None, budget_watts: float | None) -> None:
        lowest = ceil(log(least_share) / log(PER_NOTCH) - 1e-9)
        self._least = least_share
        self._heat_policy = heat_policy
        self._budget_watts = budget_watts
        self._levers = {cause: HysteresisController(lowest) for cause in ThrottleCause}

    @property
    def share(self) -> float:
        """Share of slots and of a step's tokens that may be used, ``least_share`` to 1."""
        return self._share(max(lever.notch for lever in self._levers.values()))

    @property
    def causes(self) -> tuple[ThrottleCause, ...]:
        """What holds something back now."""
        return tuple(cause for cause, lever in self._levers.items() if lever.notch)

    def observe(self, reading: BoardReading) -> tuple[ThrottleChange, ...]:
        """Takes a reading; returns which levers moved, in order."""
        changes = []
        if (policy := self._heat_policy) is not None:
            zone = hottest(reading.zones, policy)
            numbers = {"slowdowns": float(len(reading.slowdowns))}
            if zone is not None:
                numbers |= {"celsius": zone.zone.celsius, "limit_celsius": zone.limit_c}
            burden = heat(zone, bool(reading.slowdowns), policy)
            changes.append((ThrottleCause.HEAT, self._levers[ThrottleCause.HEAT], burden, numbers))
        if (budget := self._budget_watts) is not None:
            numbers = {"budget_watts": budget} | ({} if reading.watts is None else {"watts": reading.watts})
            changes.append(
                (ThrottleCause.POWER, self._levers[ThrottleCause.POWER], power(reading.watts, budget), numbers)
            )
        told = []
        for cause, lever, burden, numbers in changes:
            notch, before = lever.notch, self.share
            if (now := lever.observe(burden)) != notch:
                reason = _REASONS[cause][now > notch]
                told.append(ThrottleChange(cause, self.share, before, reason, numbers))
        return tuple(told)

    def _share(self, notch: int) -> float:
        return max(self._least, PER_NOTCH**notch)


_REASONS: Final = {
    ThrottleCause.HEAT: ("the board has cooled down", "the board is too hot"),
    ThrottleCause.POWER: ("the board takes less than its budget", "the board takes more than its budget"),
}
