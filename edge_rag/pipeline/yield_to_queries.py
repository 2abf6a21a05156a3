"""Queries run before ingest: ingest computes in small pieces and waits between them while queries are answered."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

GUARANTEED_SHARE: Final = 0.1
"""Share of the time that ingest gets under any load of queries, so that a flood of them cannot starve it."""

QUIET_S: Final = 0.1
"""How long no query may have run before ingest continues, seconds. Without it, a client that sends one query after the
other would find ingest computing each time."""


def longest_pause_s(worked_s: float, share: float = GUARANTEED_SHARE) -> float:
    """Returns how long ingest waits for queries at most after a piece of work, seconds.

    Args:
        worked_s: How long the piece took, seconds.
        share: Share of the time that ingest gets at least, in (0, 1].
    """
    return worked_s * (1 / share - 1)


class IngestYield:
    """Counts the queries in flight. May be used from any thread.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._idle = threading.Condition()
        self._queries = 0
        self._idle_since = -math.inf
        self._closed = False

    @contextmanager
    def query(self) -> Iterator[None]:
        """Counts a query as in flight for the duration of the block."""
        with self._idle:
            self._queries += 1
        try:
            yield
        finally:
            with self._idle:
                self._queries -= 1
                if not self._queries:
                    self._idle_since = self._clock()
                    self._idle.notify_all()

    def yield_to_queries(self, worked_s: float, is_ended: Callable[[], bool] = lambda: False) -> None:
        """Waits until no query has run for ``QUIET_S``, but at most ``longest_pause_s(worked_s)``.

        Args:
            worked_s: How long the last piece of ingest work took, seconds.
            is_ended: Returns whether the work was ended, which ends the wait; asked again every ``QUIET_S``.
        """
        deadline = self._clock() + longest_pause_s(worked_s)
        with self._idle:
            while not self._closed and not is_ended() and (left := deadline - self._clock()) > 0:
                quiet_in = self._idle_since + QUIET_S - self._clock()
                if not self._queries and quiet_in <= 0:
                    return
                self._idle.wait(min(left, QUIET_S if self._queries else quiet_in))

    def close(self) -> None:
        with self._idle:
            self._closed = True
            self._idle.notify_all()
