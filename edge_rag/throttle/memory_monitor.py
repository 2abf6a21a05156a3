"""Looks at the memory again and again on a thread of its own, at once where the kernel raises its hand, and sheds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from edge_rag.core.monitoring.event import AuditEvent, AuditEventKind
from edge_rag.core.monitoring.resources import MemoryPressureState, ShedTarget
from edge_rag.core.ports import AuditSink
from edge_rag.throttle.load_shedding import Shedding
from edge_rag.throttle.sensors import PressureTrigger, read_pressure

log = structlog.get_logger()

_REASONS = {
    ShedTarget.PREFIX_CACHE: "cached pages are given back",
    ShedTarget.BATCH: "batch requests wait and new ones are refused",
    ShedTarget.ARENAS: "encoders keep no memory between runs",
}

_LEAST_WAIT_S = 0.1


@dataclass(frozen=True, slots=True)
class MemoryShedder:
    """What a watch does to give memory back.

    Attributes:
        shed_memory: Has the generator drop its cached pages once more, and hold batch requests or not.
        keep_arenas: Whether encoders keep their arenas between runs.
        trim: Gives free memory of the process back.
        decisions: Keeps the trail.
    """

    shed_memory: Callable[[bool, bool], None]
    keep_arenas: Callable[[bool], None]
    trim: Callable[[], None]
    decisions: AuditSink


class MemoryWatch:
    """Reads memory pressure and gives up what the policy says.

    Args:
        root: Where ``proc`` and ``sys`` are.
        relief: What is done.
        interval_s: Longest time between two looks, seconds.
        clock: Monotonic seconds.
    """

    def __init__(
        self, root: Path, relief: MemoryShedder, interval_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._root = root
        self._relief = relief
        self._interval_s = interval_s
        self._clock = clock
        self._shedding = Shedding()
        self._state = MemoryPressureState()
        self._closed = threading.Event()
        self._trigger = PressureTrigger(root)
        self._thread = threading.Thread(target=self._run, name="memory-watch", daemon=True)

    @property
    def state(self) -> MemoryPressureState:
        """What the last look saw, and what is given up."""
        return self._state

    def start(self) -> None:
        """Begins to look."""
        self._thread.start()

    def close(self) -> None:
        """Ends; what was given up stays so."""
        if not self._closed.is_set():
            self._closed.set()
            self._trigger.wake()
            if self._thread.is_alive():
                self._thread.join()
            self._trigger.close()

    def look(self) -> None:
        """Looks at the memory once."""
        reading, now = read_pressure(self._root), self._clock()
        changes = self._shedding.observe(reading)
        shed = self._shedding.shed
        for change in changes:
            reason = _REASONS[change.ballast] if change.shed else f"no longer: {_REASONS[change.ballast]}"
            log.warning("memory", reason=reason, **change.numbers)
            self._relief.decisions.record(AuditEvent(AuditEventKind.SHED, None, "", None, reason, change.numbers, now))
        if shed or changes:
            self._relief.shed_memory(ShedTarget.PREFIX_CACHE in shed, ShedTarget.BATCH in shed)
        if any(change.ballast is ShedTarget.ARENAS for change in changes):
            self._relief.keep_arenas(ShedTarget.ARENAS not in shed)
        if shed:
            self._relief.trim()
        self._state = MemoryPressureState(
            headroom_bytes=reading.headroom_bytes,
            waiting=None if reading.some_percent is None else reading.some_percent / 100,
            shed=shed,
        )

    def _run(self) -> None:
        while not self._closed.is_set():
            self.look()
            # The kernel may raise its hand in every window; there is no use in looking more often than this.
            self._closed.wait(_LEAST_WAIT_S)
            self._trigger.wait(max(0.0, self._interval_s - _LEAST_WAIT_S))
