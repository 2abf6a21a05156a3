"""Schedules of repeated work: daily, weekly, or after an interval."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import Final

_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_AT: Final = re.compile(rf"(?:({'|'.join(_DAYS)}) )?([01][0-9]|2[0-3]):([0-5][0-9])")
_EVERY: Final = re.compile(r"([1-9][0-9]{0,2})([hd])")


@dataclass(frozen=True, slots=True)
class Schedule:
    """Times in the local time zone, or an interval.

    Attributes:
        text: How it is written: ``02:30``, ``sun 02:30``, ``12h`` or ``7d``.
        at: Time of the day; None for an interval.
        weekday: Day of the week, 0 for Monday; None for every day.
    """

    text: str
    at: time | None = None
    weekday: int | None = None
    interval: timedelta | None = None

    @staticmethod
    def parse(text: str) -> Schedule:
        """Reads a schedule."""
        if at := _AT.fullmatch(text):
            weekday = None if at[1] is None else _DAYS.index(at[1])
            return Schedule(text, time(int(at[2]), int(at[3])), weekday)
        if every := _EVERY.fullmatch(text):
            return Schedule(text, interval=timedelta(**{{"h": "hours", "d": "days"}[every[2]]: int(every[1])}))
        raise ValueError("must be a time of the day as 02:30, of a week as sun 02:30, or an interval as 12h or 7d")

    def next_after(self, moment: datetime, zone: tzinfo | None = None) -> datetime:
        """Returns the first time after a moment, UTC.

        Args:
            zone: Time zone of the times of a day; None for that of the machine. A time that a change of the clock skips
                comes an hour later.
        """
        if self.interval is not None:
            return moment.astimezone(UTC) + self.interval
        assert self.at is not None, "a schedule has times or an interval"
        day = moment.astimezone(zone).date()
        while True:
            naive = datetime.combine(day, self.at)
            found = (naive.astimezone() if zone is None else naive.replace(tzinfo=zone)).astimezone(UTC)
            if found > moment and self.weekday in (None, day.weekday()):
                return found
            day += timedelta(days=1)
