"""Checks temperature, power and hardware throttling periodically, and limits the generator accordingly."""

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
from edge_rag.throttle.policy import BoardReading, ThrottleChange, ThrottlePolicy
from edge_rag.throttle.sensors import EnergyMeter, read_event_counts, read_power, read_slowdowns, read_zones

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Actuators:
    """The parts that the monitor reads and controls.

    Attributes:
        set_throttle: Limits the generator to a share of its slots and of a step's tokens.
        generated_per_s: Returns the recent rate of generated tokens, 1/s.
    """

    set_throttle: Callable[[float], None]
    generated_per_s: Callable[[], float]
    audit: AuditSink


class BoardMonitor:
    """Reads the board's sensors and applies the throttle policy, on a thread of its own."""

    def __init__(
        self,
        root: Path,
        policy: ThrottlePolicy,
        actuators: Actuators,
        interval_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._root = root
        self._policy = policy
        self._actuators = actuators
        self._interval_s = interval_s
        self._clock = clock
        self._meter = EnergyMeter()
        self._events: Mapping[str, int] = read_event_counts(root)
        self._state = Throttling()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="board-monitor", daemon=True)

    @property
    def state(self) -> Throttling:
        return self._state

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def close(self) -> None:
        """Ends the thread; the throttle stays as it is."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()

    def check(self) -> None:
        """Checks the board once."""
        now = self._clock()
        self._meter.observe(read_power(self._root), now)
        slowdowns = (*read_slowdowns(self._root), *self._new_events())
        reading = BoardReading(read_zones(self._root), slowdowns, self._meter.watts)
        for change in self._policy.observe(reading):
            self._record(change, now)
            self._actuators.set_throttle(change.share)
        rate = self._actuators.generated_per_s()
        watts = self._meter.watts
        self._state = Throttling(
            share=self._policy.share,
            causes=self._policy.causes,
            slowdowns=slowdowns,
            watts=watts,
            joules_per_token=None if watts is None or rate <= 0 else watts / rate,
            joules=None if watts is None else self._meter.joules,
        )

    def _run(self) -> None:
        while not self._closed.wait(self._interval_s):
            self.check()

    def _new_events(self) -> tuple[str, ...]:
        counts = read_event_counts(self._root)
        increased = tuple(event for event, count in counts.items() if count > self._events.get(event, count))
        self._events = counts
        return increased

    def _record(self, change: ThrottleChange, now: float) -> None:
        numbers = {**change.numbers, "share": change.share, "share_before": change.before}
        log.warning("throttle", cause=change.cause.value, reason=change.reason, **numbers)
        event = AuditEvent(AuditEventKind.THROTTLED, None, "", None, change.reason, numbers, now)
        self._actuators.audit.record(event)
