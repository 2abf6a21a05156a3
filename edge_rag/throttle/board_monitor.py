"""Looks at the board again and again on a thread of its own, and has the daemon do less or more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from edge_rag.core.monitoring.event import AuditEvent, AuditEventKind
from edge_rag.core.monitoring.resources import Throttling
from edge_rag.core.ports import AuditSink
from edge_rag.throttle.policy import BoardReading, Throttle, ThrottleChange
from edge_rag.throttle.sensors import EnergyMeter, read_event_counts, read_power, read_slowdowns, read_zones

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Levers:
    """What a watch moves and tells.

    Attributes:
        restrain: Has the generator use that share of its slots and of a step's tokens from now on.
        generated_per_s: Returns how many tokens came a second lately.
        decisions: Keeps the trail.
    """

    set_throttle: Callable[[float], None]
    generated_per_s: Callable[[], float]
    decisions: AuditSink


class BoardWatch:
    """Reads the board's sensors and moves what the throttle says.

    Args:
        root: Where ``sys`` is.
        throttle: Decides.
        levers: What is moved and told.
        interval_s: Time between two looks, seconds.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        root: Path,
        throttle: Throttle,
        levers: Levers,
        interval_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._root = root
        self._throttle = throttle
        self._levers = levers
        self._interval_s = interval_s
        self._clock = clock
        self._meter = EnergyMeter()
        self._events: Mapping[str, int] = read_event_counts(root)
        self._state = Throttling()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="board-watch", daemon=True)

    @property
    def state(self) -> Throttling:
        """What the last look saw, and what follows from it."""
        return self._state

    def start(self) -> None:
        """Begins to look."""
        self._thread.start()

    def close(self) -> None:
        """Ends; what is held back stays so."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()

    def look(self) -> None:
        """Looks at the board once."""
        now = self._clock()
        self._meter.observe(read_power(self._root), now)
        slowdowns = (*read_slowdowns(self._root), *self._new_events())
        reading = BoardReading(read_zones(self._root), slowdowns, self._meter.watts)
        for change in self._throttle.observe(reading):
            self._tell(change, now)
            self._levers.set_throttle(change.share)
        rate = self._levers.generated_per_s()
        watts = self._meter.watts
        self._state = Throttling(
            share=self._throttle.share,
            causes=self._throttle.causes,
            slowdowns=slowdowns,
            watts=watts,
            joules_per_token=None if watts is None or rate <= 0 else watts / rate,
            joules=None if watts is None else self._meter.joules,
        )

    def _run(self) -> None:
        while not self._closed.wait(self._interval_s):
            self.look()

    def _new_events(self) -> tuple[str, ...]:
        counts = read_event_counts(self._root)
        grown = tuple(what for what, count in counts.items() if count > self._events.get(what, count))
        self._events = counts
        return grown

    def _tell(self, change: ThrottleChange, now: float) -> None:
        numbers = {**change.numbers, "share": change.share, "share_before": change.before}
        log.warning("throttle", cause=change.cause.value, reason=change.reason, **numbers)
        decision = AuditEvent(AuditEventKind.THROTTLED, None, "", None, change.reason, numbers, now)
        self._levers.decisions.record(decision)
