"""Under a real limit on memory the kernel kills nobody: what can be given up is, in order, and taken up again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from edge_rag.client import AskOptions, CallStatus, Client, ClientError
from edge_rag.core.answer import Finished
from edge_rag.core.monitoring.event import AuditEntry, AuditEventKind
from edge_rag.core.monitoring.resources import ShedTarget
from edge_rag.core.query import AnswerMode, Priority
from tests.e2e.support.memory_cgroup import memory_cgroup
from tests.e2e.support.running_daemon import ROOT, RunningDaemon, ingest, sample_documents

MIB = 1 << 20
SECONDS = float(os.environ.get("EDGE_RAG_SOAK_SECONDS", "3"))
QUESTIONS = ("How often must the pump bearings be greased?", "What do I do when the gas alarm sounds?")


def planned_bytes(data_dir: Path) -> int:
    command = [sys.executable, "-m", "edge_rag.cli.main", "doctor", "--data-dir", str(data_dir)]
    said = subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stdout
    found = re.search(r"(\d+) of \d+ MiB planned", said)
    assert found is not None, said
    return int(found[1]) * MIB


class Load:
    """Questions of both classes until it is told to stop, and documents in between."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.answered = 0
        self._told = threading.Condition()
        self.refused: list[ClientError] = []
        self.failed: list[ClientError] = []
        self._over = threading.Event()
        classes = (Priority.INTERACTIVE, Priority.INTERACTIVE, Priority.BATCH, Priority.BATCH)
        self._threads = [threading.Thread(target=self._ask, args=(each, n)) for n, each in enumerate(classes)]
        self._threads.append(threading.Thread(target=self._ingest))

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(120)

    def wait_for_answers(self, count: int) -> None:
        """Waits until so many more are there."""
        with self._told:
            enough = self.answered + count
            assert self._told.wait_for(lambda: self.answered >= enough, 120), (self.answered, self.failed)

    def _ask(self, priority: Priority, number: int) -> None:
        count = number
        with Client(self.address, timeout_s=60) as client:
            while not self._over.is_set():
                count += 1
                question = f"{QUESTIONS[count % 2]} Case {count}."
                options = AskOptions(mode=AnswerMode.FREE, priority=priority, max_tokens=48)
                try:
                    *_, last = client.ask(question, options)
                    assert isinstance(last, Finished)
                    with self._told:
                        self.answered += 1
                        self._told.notify_all()
                except ClientError as error:
                    if error.status is CallStatus.RESOURCE_EXHAUSTED and priority is Priority.BATCH:
                        self.refused.append(error)
                        self._over.wait(0.2)
                    else:
                        self.failed.append(error)
                        return

    def _ingest(self) -> None:
        count = 0
        while not self._over.wait(1.0):
            count += 1
            ingest(self.address, {"log.md": f"# Log {count}\n\nPump {count} was greased.\n".encode()})


@pytest.mark.soak
def test_under_a_limit_nobody_is_killed_and_what_was_given_up_comes_back(
    start: Callable[..., RunningDaemon], tmp_path: Path
) -> None:
    with memory_cgroup() as memory:
        running = start(config="[throttle]\ninterval_seconds = 0.2\n", prefix=memory.prefix)
        try:
            ingest(running.address, sample_documents())
            memory.limit(int(0.95 * planned_bytes(tmp_path / "data")))
            with Load(running.address) as load, Client(running.address) as client:
                reports = client.watch_status(0.2)
                until = time.monotonic() + SECONDS
                while time.monotonic() < until:
                    assert next(reports).pressure.headroom_bytes is not None
                load.wait_for_answers(40)

                # Now there is less than the daemon wants: the limit follows what it holds until all is given up.
                while len(next(reports).pressure.shed) < len(ShedTarget):
                    memory.limit(memory.used_bytes() + 24 * MIB)
                load.wait_for_answers(3)
                memory.limit(None)
                while next(reports).pressure.shed:
                    pass
            assert load.failed == []
            with Client(running.address) as client:
                entries = [entry.event for entry in client.audit_events() if isinstance(entry, AuditEntry)]
            shed = [decision.reason for decision in entries if decision.kind is AuditEventKind.SHED]
            assert shed[:3] == [
                "memory is short: the prefix cache is dropped",
                "memory is short: batch requests wait and new ones are refused",
                "memory is short: encoders keep no memory between runs",
            ]
            assert shed[-1] == "memory is available: the prefix cache is kept again"
            assert all(error.retry_after_s for error in load.refused)
            assert memory.kills() == 0
            assert running.stop() == 0
        finally:
            running.process.kill()
            running.process.wait(30)
