from __future__ import annotations

import os
import random
import threading
import time
from dataclasses import dataclass, field

import pytest

from edge_rag.core.ids import require_recognized
from edge_rag.core.monitoring.event import AuditEventKind
from edge_rag.core.query import Priority
from edge_rag.engine.engine import Engine, EngineSettings
from edge_rag.engine.ports import Outcome
from edge_rag.engine.scheduling.policy import SchedulerLimits
from edge_rag.errors import DeadlineExceeded
from tests.unit.engine.recorded_events import RecordedEvents, assert_legal
from tests.unit.engine.support import Recorder, prompts, request, tiny_decoder

SECONDS = float(os.environ.get("EDGE_RAG_SOAK_SECONDS", "5"))
SLOTS = 8
PAGES = 16
PAGE_TOKENS = 32


@dataclass
class Load:
    """Clients that keep the queue full, each request twice as large as its share of the cache."""

    engine: Engine
    chance: random.Random
    until: float
    slack: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(3 * SLOTS))
    sinks: list[tuple[Recorder, int, float | None]] = field(default_factory=list)

    def run(self) -> None:
        """Sends requests until the time is up, then waits for those that are unfinished."""
        bodies = prompts(64, 10, 30, seed=7)
        while time.monotonic() < self.until:
            self.slack.acquire()
            n = len(self.sinks)
            most = 2 * PAGES * PAGE_TOKENS // SLOTS - 30
            deadline = time.monotonic() + self.chance.uniform(0.01, 2.0) if n % 3 == 0 else None
            priority = Priority(self.chance.randrange(3))
            tokens = self.chance.randrange(most // 2, most)
            sink = Releasing(self.slack)
            item = request(
                bodies[n % 64], tokens, priority=priority, deadline=deadline, request_id=str(n), client=f"{n % 4}"
            )
            self.engine.submit(item, sink)
            self.sinks.append((sink, tokens, deadline))
        for sent, _, _ in self.sinks:
            sent.wait()


class Releasing(Recorder):
    """A sink that lets the next request be sent when its own is over."""

    def __init__(self, slack: threading.Semaphore) -> None:
        super().__init__()
        self._slack = slack

    def _end(self) -> None:
        super()._end()
        self._slack.release()


@pytest.mark.soak
def test_twice_as_many_pages_wanted_as_there_are_lets_every_request_finish_or_reach_its_deadline() -> None:
    audit = RecordedEvents()
    engine = Engine(
        tiny_decoder(pages=PAGES),
        EngineSettings(SchedulerLimits(SLOTS, 128, 32), max_waiting=4 * SLOTS, aging_s=1.0),
        audit=audit,
    )
    engine.start()
    load = Load(engine, random.Random(1), time.monotonic() + SECONDS)
    load.run()
    state = engine.stats()
    engine.close()
    assert state.preemptions > 0, "there was no shortage"
    assert len(load.sinks) >= 2 * SLOTS
    for n, (sink, tokens, deadline) in enumerate(load.sinks):
        assert sink.ends == 1
        if sink.error is not None:
            assert isinstance(sink.error, DeadlineExceeded), (n, sink.error)
            assert deadline is not None
        else:
            assert isinstance(sink.outcome, Outcome)
            assert len(sink.tokens) == tokens
    assert (state.pages_used, state.slots_busy, state.waiting) == (0, 0, 0)
    audit_logs: dict[str, list[AuditEventKind]] = {}
    for event in audit.events:
        assert event.request_id is not None
        audit_logs.setdefault(event.request_id, []).append(require_recognized(event.kind))
    for kinds in audit_logs.values():
        assert_legal(kinds, ended=True)
