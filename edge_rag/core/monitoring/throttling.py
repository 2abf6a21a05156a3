"""How warm the board is, and how much the daemon does on one that suffers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Temperature:
    """A thermal zone at one moment.

    Attributes:
        zone: Its name, as the board gives it.
        celsius: Its temperature.
    """

    zone: str
    celsius: float


class ThrottleCause(Enum):
    """What holds the daemon back."""

    HEAT = "heat"
    POWER = "power"


@dataclass(frozen=True, slots=True)
class Throttling:
    """How much the daemon does on a board that suffers.

    Attributes:
        share: Share of slots, of a step's tokens and of the time that may be used, above 0 to 1; 1 holds nothing back.
        causes: What holds it back.
        slowdowns: What slows the board down on its own, in words.
        watts: What the board takes; None where it does not measure it.
        joules_per_token: Energy for a generated token over the last seconds; None likewise, or where none came.
        joules: Energy taken since the daemon was started; None where the board does not measure it.
    """

    share: float = 1.0
    causes: tuple[ThrottleCause, ...] = ()
    slowdowns: tuple[str, ...] = ()
    watts: float | None = None
    joules_per_token: float | None = None
    joules: float | None = None
