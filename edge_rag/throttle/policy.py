"""How much may run on a board that is hot or takes too much power: several levers, of which the lowest counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log
from typing import Final

from edge_rag.core.monitoring.throttling import ThrottleCause
from edge_rag.device.facts import ThermalZone
from edge_rag.throttle.burdens import HeatPolicy, heat, hottest, power
from edge_rag.throttle.hysteresis import Notches

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
        self._levers = {cause: Notches(lowest) for cause in ThrottleCause}

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
