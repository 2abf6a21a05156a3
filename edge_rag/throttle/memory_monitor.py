"""Sheds memory under memory pressure.

``ShedPolicy`` decides which memory users are shed, in order, and when they are restored; pure. ``MemoryMonitor`` checks
memory pressure periodically, and at once on a kernel notification, and applies the policy.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from edge_rag.core.monitoring.event import AuditEvent, AuditEventKind
from edge_rag.core.monitoring.resources import MemoryPressureState, ShedTarget
from edge_rag.core.ports import AuditSink
from edge_rag.throttle.hysteresis import HysteresisController, LoadLevel
from edge_rag.throttle.sensors import MemoryReading, PressureTrigger, read_pressure

_RESERVE_SHARE: Final = 0.05
_MIN_RESERVE_BYTES: Final = 32 << 20
"""More than the first run of an encoder or of the generator allocates at once, measured as 18 MiB with the default
models."""

_MAX_RESERVE_BYTES: Final = 256 << 20
_HIGH_PERCENT: Final = 10.0
_STALLED_PERCENT: Final = 5.0
_LOW_PERCENT: Final = 2.0


@dataclass(frozen=True, slots=True)
class ShedChange:
    """A target is shed or restored."""

    target: ShedTarget
    shed: bool
    numbers: Mapping[str, float]


def memory_level(reading: MemoryReading) -> LoadLevel:
    """Returns the load level of memory.

    HIGH: the headroom is below the reserve (5% of the board's memory, 32 to 256 MiB), or tasks waited for memory for
    more than 10% of the time. EXTREME: the headroom is below a quarter of the reserve, or all tasks stalled for more
    than 5% of the time. LOW: the headroom is twice the reserve and tasks waited for less than 2% of the time.
    """
    reserve = min(_MAX_RESERVE_BYTES, max(_MIN_RESERVE_BYTES, reading.board_bytes * _RESERVE_SHARE))
    some, full = reading.some_percent or 0.0, reading.full_percent or 0.0
    if reading.headroom_bytes < reserve / 4 or full > _STALLED_PERCENT:
        return LoadLevel.EXTREME
    if reading.headroom_bytes < reserve or some > _HIGH_PERCENT:
        return LoadLevel.HIGH
    low = reading.headroom_bytes > 2 * reserve and some < _LOW_PERCENT
    return LoadLevel.LOW if low else LoadLevel.NORMAL


class ShedPolicy:
    """Decides which memory users are shed. No clock, no I/O: equal readings give equal decisions."""

    def __init__(self) -> None:
        self._controller = HysteresisController(len(ShedTarget))

    @property
    def shed(self) -> tuple[ShedTarget, ...]:
        """The targets shed now, in the order of shedding."""
        return tuple(ShedTarget)[: self._controller.step]

    def observe(self, reading: MemoryReading) -> tuple[ShedChange, ...]:
        """Takes a reading; returns the changes, in the order in which to apply them."""
        before = self._controller.step
        now = self._controller.observe(memory_level(reading))
        numbers: dict[str, float] = {"headroom_bytes": reading.headroom_bytes, "board_bytes": reading.board_bytes}
        if reading.some_percent is not None:
            numbers["waiting_percent"] = reading.some_percent
        if reading.full_percent is not None:
            numbers["stalled_percent"] = reading.full_percent
        order = tuple(ShedTarget)
        if now > before:
            return tuple(ShedChange(each, True, numbers) for each in order[before:now])
        return tuple(ShedChange(each, False, numbers) for each in reversed(order[now:before]))


log = structlog.get_logger()

_REASONS = {
    ShedTarget.PREFIX_CACHE: "memory is short: the prefix cache is dropped",
    ShedTarget.BATCH: "memory is short: batch requests wait and new ones are refused",
    ShedTarget.ARENAS: "memory is short: encoders keep no memory between runs",
}
_RESTORED = {
    ShedTarget.PREFIX_CACHE: "memory is available: the prefix cache is kept again",
    ShedTarget.BATCH: "memory is available: batch requests are accepted again",
    ShedTarget.ARENAS: "memory is available: encoders keep memory between runs again",
}

_MIN_INTERVAL_S = 0.1


@dataclass(frozen=True, slots=True)
class MemoryShedder:
    """The parts that the monitor controls.

    Attributes:
        shed_memory: Drops the generator's prefix cache, if the first argument is true, and holds batch requests back,
            if the second is.
    """

    shed_memory: Callable[[bool, bool], None]
    keep_arenas: Callable[[bool], None]
    trim: Callable[[], None]
    audit: AuditSink


class MemoryMonitor:
    """Reads memory pressure and applies the shed policy, on a thread of its own."""

    def __init__(
        self, root: Path, shedder: MemoryShedder, interval_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._root = root
        self._shedder = shedder
        self._interval_s = interval_s
        self._clock = clock
        self._policy = ShedPolicy()
        self._state = MemoryPressureState()
        self._closed = threading.Event()
        self._trigger = PressureTrigger(root)
        self._thread = threading.Thread(target=self._run, name="memory-monitor", daemon=True)

    @property
    def state(self) -> MemoryPressureState:
        return self._state

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def close(self) -> None:
        """Ends the thread; shed targets stay shed."""
        if not self._closed.is_set():
            self._closed.set()
            self._trigger.wake()
            if self._thread.is_alive():
                self._thread.join()
            self._trigger.close()

    def check(self) -> None:
        """Checks memory pressure once."""
        reading, now = read_pressure(self._root), self._clock()
        changes = self._policy.observe(reading)
        shed = self._policy.shed
        for change in changes:
            reason = (_REASONS if change.shed else _RESTORED)[change.target]
            log.warning("memory", reason=reason, **change.numbers)
            self._shedder.audit.record(AuditEvent(AuditEventKind.SHED, None, "", None, reason, change.numbers, now))
        if shed or changes:
            self._shedder.shed_memory(ShedTarget.PREFIX_CACHE in shed, ShedTarget.BATCH in shed)
        if any(change.target is ShedTarget.ARENAS for change in changes):
            self._shedder.keep_arenas(ShedTarget.ARENAS not in shed)
        if shed:
            self._shedder.trim()
        self._state = MemoryPressureState(
            headroom_bytes=reading.headroom_bytes,
            waiting=None if reading.some_percent is None else reading.some_percent / 100,
            shed=shed,
        )

    def _run(self) -> None:
        while not self._closed.is_set():
            self.check()
            # The kernel may notify in every window; more frequent checks are of no use.
            self._closed.wait(_MIN_INTERVAL_S)
            self._trigger.wait(max(0.0, self._interval_s - _MIN_INTERVAL_S))
