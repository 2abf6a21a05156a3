"""Whether the work goes on: every engine that runs has to go round, not just one of them."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Pulses:
    """Says that the work goes on each time all engines that run have gone round since it was last said. Any thread.

    While a model takes the place of another there are two, and one that hangs must not hide behind the other.

    Args:
        alive: Says it; must return at once.
    """

    def __init__(self, alive: Callable[[], None]) -> None:
        self._alive = alive
        self._lock = threading.Lock()
        self._running: set[Pulse] = set()
        self._awaited: set[Pulse] = set()

    def turned(self, pulse: Pulse) -> None:
        """An engine went round; from the first time on it is waited for."""
        with self._lock:
            self._running.add(pulse)
            self._awaited.discard(pulse)
            if self._awaited:
                return
            self._awaited = set(self._running)
        self._alive()

    def ended(self, pulse: Pulse) -> None:
        """An engine has ended and is waited for no more."""
        with self._lock:
            self._running.discard(pulse)
            self._awaited.discard(pulse)


class Pulse:
    """One engine's.

    Args:
        pulses: All of them.
    """

    def __init__(self, pulses: Pulses) -> None:
        self._pulses = pulses

    def turned(self) -> None:
        """The engine went round."""
        self._pulses.turned(self)

    def ended(self) -> None:
        """It does no more."""
        self._pulses.ended(self)
