"""Signals that come while documents are handed over and questions asked: nothing that was accepted is lost."""

import itertools
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import grpc
import pytest

from edge_rag.api.v1 import documents_pb2, rag_pb2, rag_pb2_grpc
from edge_rag.client import Client
from tests.e2e.support.jobs import final_states, parts, stub, watch
from tests.e2e.support.running_daemon import RunningDaemon, ingest
from tests.support.systemd_socket import Manager, has

WATCHDOG_S = 3.0
QUESTION = "How often must the pump bearings be greased?"
ANSWER = "The pump bearings must be greased every 2,000 operating hours."
GONE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


class Load:
    """A client that hands documents over, and one that asks, until the daemon is gone."""

    def __init__(self, address: str) -> None:
        self.accepted: dict[str, list[str]] = {}
        self.answers = 0
        self.enough = threading.Event()
        self._address = address
        self._pool = ThreadPoolExecutor(2)
        self._running = [self._pool.submit(self._hand_over), self._pool.submit(self._ask)]

    def wait(self) -> None:
        for each in self._running:
            each.result()
        self._pool.shutdown()

    def _hand_over(self) -> None:
        numbers = itertools.count()
        with grpc.insecure_channel(self._address) as channel:
            try:
                while True:
                    names = [f"note-{next(numbers)}.txt" for _ in range(3)]
                    documents = {name: f"Note {name} is about the weather of that day.".encode() for name in names}
                    responses = iter(stub(channel).StartIngest(parts(documents), timeout=120))
                    taken = self.accepted.setdefault(next(responses).job.id, [])
                    for response in responses:
                        assert response.document.state == documents_pb2.JOB_DOCUMENT_STATE_QUEUED
                        taken.append(response.document.name)
                        if sum(map(len, self.accepted.values())) >= 12 and self.answers:
                            self.enough.set()
            except grpc.RpcError as error:
                assert cast(grpc.Call, error).code() in GONE, error
            finally:
                self.enough.set()

    def _ask(self) -> None:
        with grpc.insecure_channel(self._address) as channel:
            try:
                while True:
                    responses = rag_pb2_grpc.RagStub(channel).Ask(rag_pb2.AskRequest(question=QUESTION), timeout=120)
                    assert "".join(response.text.text for response in responses) == ANSWER
                    self.answers += 1
            except grpc.RpcError as error:
                assert cast(grpc.Call, error).code() in GONE, error


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    there = Manager(tmp_path / "notify")
    yield there
    there.close()


def let_go(daemon: RunningDaemon) -> None:
    assert daemon.stop() == 0


def kill(daemon: RunningDaemon) -> None:
    daemon.process.kill()
    daemon.process.wait(30)


@pytest.mark.parametrize("end", [let_go, kill])
def test_the_next_start_has_every_document_that_was_accepted_and_serves(
    start: Callable[..., RunningDaemon], end: Callable[[RunningDaemon], None]
) -> None:
    daemon = start()
    ingest(daemon.address, {"pump.txt": ANSWER.encode()})
    load = Load(daemon.address)
    assert load.enough.wait(120)
    end(daemon)
    load.wait()
    assert load.answers
    require_kept(start(), load)


def test_a_hung_daemon_starves_its_watchdog_and_its_successor_has_all_that_was_accepted(
    start: Callable[..., RunningDaemon], manager: Manager
) -> None:
    """The test is the service manager: systemd ends a service that misses its watchdog with SIGABRT and starts it."""
    daemon = start(environment=manager.environment(WATCHDOG_S))
    manager.until(has("READY"))
    ingest(daemon.address, {"pump.txt": ANSWER.encode()})
    load = Load(daemon.address)
    assert load.enough.wait(120)
    daemon.process.send_signal(signal.SIGSTOP)
    manager.waiting()
    with pytest.raises(TimeoutError):
        manager.until(has("READY"), timeout_s=WATCHDOG_S)
    daemon.process.send_signal(signal.SIGABRT)
    daemon.process.send_signal(signal.SIGCONT)
    assert daemon.process.wait(30) == -signal.SIGABRT
    load.wait()
    successor = start(environment=manager.environment(WATCHDOG_S))
    manager.until(has("READY"))
    require_kept(successor, load)
    manager.waiting()
    assert manager.next() == {"WATCHDOG": "1"}


def require_kept(daemon: RunningDaemon, load: Load) -> None:
    """Whatever was accepted is stored, and questions are answered."""
    assert sum(map(len, load.accepted.values())) >= 12
    for job_id, names in load.accepted.items():
        states = final_states(watch(daemon.address, job_id))
        assert {states[name] for name in names} <= {"added", "unchanged"}
    with Client(daemon.address) as client:
        stored = {info.name for info in client.documents()}
    assert {name for names in load.accepted.values() for name in names} <= stored
    with grpc.insecure_channel(daemon.address) as channel:
        responses = rag_pb2_grpc.RagStub(channel).Ask(rag_pb2.AskRequest(question=QUESTION), timeout=120)
        assert "".join(response.text.text for response in responses) == ANSWER
