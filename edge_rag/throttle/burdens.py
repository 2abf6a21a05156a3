"""What readings of the board mean: pure functions from numbers to a burden."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from edge_rag.device.facts import ThermalZone
from edge_rag.throttle.hysteresis import Burden

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


def heat(zone: Hottest | None, slowed_down: bool, policy: HeatPolicy) -> Burden:
    """Returns how heavy heat weighs.

    Args:
        zone: The zone that matters.
        slowed_down: Whether something slows the board down already.
        policy: When it is hot.
    """
    if zone is None:
        return Burden.TOO_MUCH if slowed_down else Burden.LITTLE
    celsius, critical = zone.zone.celsius, zone.zone.critical_celsius
    if celsius > zone.limit_c + _EXTREME_C or (critical is not None and celsius > critical - _BELOW_CRITICAL_C):
        return Burden.EXTREME
    if celsius > zone.limit_c or slowed_down:
        return Burden.TOO_MUCH
    return Burden.LITTLE if celsius < zone.limit_c - policy.margin_c else Burden.BEARABLE


def power(watts: float | None, budget_watts: float) -> Burden:
    """Returns how heavy the power taken weighs; nothing where it is not measured."""
    if watts is None or watts < _LITTLE_POWER * budget_watts:
        return Burden.LITTLE
    return Burden.TOO_MUCH if watts > budget_watts else Burden.BEARABLE


def _limit(zone: ThermalZone, policy: HeatPolicy) -> float:
    if zone.passive_celsius is None:
        return policy.throttle_c
    return min(policy.throttle_c, zone.passive_celsius - _BELOW_PASSIVE_C)
