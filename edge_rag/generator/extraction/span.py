"""A value in a text, and what it looks like."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What a value looks like."""

    NUMBER = "number"
    SHARE = "share"
    SPAN = "span"
    RHYTHM = "rhythm"
    DATE = "date"
    YEAR = "year"
    DECADE = "decade"
    MONTH = "month"
    WEEKDAY = "weekday"
    TIME = "time"
    NAME = "name"
    CODE = "code"
    QUOTED = "quoted"
    CELL = "cell"
    KEYED = "keyed"
    CHOICE = "choice"
    RUN = "run"


@dataclass(frozen=True, slots=True)
class Span:
    """A value in a text.

    Attributes:
        start: First character.
        end: One past the last.
        kind: What it looks like.
        bare: One past the last character of the number alone, without what it counts; ``end`` of other values.
        readings: What it may mean as a JSON number or an ISO date, likeliest first; none of a text.
        unit: What follows the number, lower case; empty without.
        part: Whether it is one end of a range.
    """

    start: int
    end: int
    kind: Kind
    bare: int
    readings: tuple[str, ...] = ()
    unit: str = ""
    part: bool = False
