"""Questions go first: ingest computes in small pieces and gives way between them."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

GUARANTEED_SHARE: Final = 0.1
"""Part of the time that ingest gets however many questions come, so that no flood of them can stop it."""

QUIET_S: Final = 0.1
"""How long nobody must have asked: who asks one question after the other would else find ingest at work each time."""


def longest_pause_s(worked_s: float, share: float = GUARANTEED_SHARE) -> float:
    """How long ingest waits for questions to be answered after a piece of work; not at all while there are none.

    Args:
        worked_s: How long the piece took, seconds.
        share: Part of the time that ingest is to have at least, in (0, 1].
    """
    return worked_s * (1 / share - 1)


class IngestYield:
    """Counts the questions that are being answered. May be used from any thread.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._idle = threading.Condition()
        self._questions = 0
        self._idle_since = -math.inf
        self._closed = False

    @contextmanager
    def question(self) -> Iterator[None]:
        """A question is being answered until the end of the block."""
        with self._idle:
            self._questions += 1
        try:
            yield
        finally:
            with self._idle:
                self._questions -= 1
                if not self._questions:
                    self._idle_since = self._clock()
                    self._idle.notify_all()

    def yield_to_queries(self, worked_s: float) -> None:
        """Returns when nobody asks, nor has just asked, or when a piece of work of that length has waited its share.

        Args:
            worked_s: How long the last piece took, seconds.
        """
        deadline = self._clock() + longest_pause_s(worked_s)
        with self._idle:
            while not self._closed and (left := deadline - self._clock()) > 0:
                quiet_in = self._idle_since + QUIET_S - self._clock()
                if not self._questions and quiet_in <= 0:
                    return
                self._idle.wait(left if self._questions else min(left, quiet_in))

    def close(self) -> None:
        """Lets go of whoever waits, from now on at once."""
        with self._idle:
            self._closed = True
            self._idle.notify_all()
