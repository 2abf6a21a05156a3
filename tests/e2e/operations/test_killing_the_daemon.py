"""A daemon killed at any moment of a mixed load loses nothing acknowledged and shows nothing that was deleted."""

import itertools
import os
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import grpc
import pytest

from edge_rag.api.v1 import documents_pb2
from edge_rag.client import CallStatus, Client, ClientError, SearchOptions
from edge_rag.core.documents.jobs import JobState
from tests.e2e.support.jobs import final_states, parts, stub, watch
from tests.e2e.support.running_daemon import RunningDaemon, ingest
from tests.e2e.support.stored_files import stored_files
from tests.unit.storage.test_storage_faults import require_whole_database

_KILLS = 200 if "EDGE_RAG_SOAK_SECONDS" in os.environ else 4
_NAMES = 8
_WORDS = ("anchor", "basin", "cable", "drain", "engine", "filter", "gasket", "hopper", "intake", "joint", "kettle")
_GONE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
_STORED = {"added", "replaced", "unchanged", "superseded"}

Version = int | None
"""What a document holds: the text of that number, or nothing, since it was deleted or never came."""


def word_of(version: int) -> str:
    """A word that no other version has; of letters only, so that nothing takes it apart."""
    return "mark" + "".join(chr(ord("a") + int(digit)) for digit in f"{version:06}")


def text_of(version: int) -> str:
    words = random.Random(version).choices(_WORDS, k=40)
    return f"{' '.join(words[:20])} {word_of(version)} {' '.join(words[20:])}."


@dataclass
class Load:
    """A client that changes documents of its own, one call after the other, and knows what was acknowledged."""

    prefix: str
    as_job: bool
    draw: random.Random
    numbers: Iterator[int]
    possible: dict[str, set[Version]] = field(default_factory=dict)
    written: set[int] = field(default_factory=set)
    accepted: dict[str, list[str]] = field(default_factory=dict)

    def run(self, address: str, acknowledged: Callable[[], None]) -> None:
        """Changes documents until the daemon is gone."""
        try:
            while True:
                self._change(address, self.draw.sample(range(_NAMES), 3), acknowledged)
        except grpc.RpcError as error:
            assert cast(grpc.Call, error).code() in _GONE, error
        except ClientError as error:
            assert error.status in (CallStatus.UNAVAILABLE, CallStatus.CANCELLED), error

    def _change(self, address: str, numbers: list[int], acknowledged: Callable[[], None]) -> None:
        names = [f"{self.prefix}{number}.txt" for number in numbers]
        if self.draw.random() < 0.3:
            self._delete(address, names[0])
            acknowledged()
        elif self.as_job:
            for _ in self._start_job(address, names):
                acknowledged()
        else:
            version = self._sent(names[0])
            (outcome,) = ingest(address, {names[0]: text_of(version).encode()})
            assert outcome.status != documents_pb2.INGEST_STATUS_REJECTED, outcome.reason
            self.possible[names[0]] = {version}
            acknowledged()

    def _delete(self, address: str, name: str) -> None:
        before = self.possible.get(name, {None})
        self.possible[name] = before | {None}
        with Client(address) as client:
            try:
                client.delete(name)
                self.possible[name] = {None}
            except ClientError as error:
                if error.status is not CallStatus.NOT_FOUND:
                    raise
                self.possible[name] = before  # it was not there, or a job has it still to store

    def _start_job(self, address: str, names: list[str]) -> Iterator[None]:
        versions = {name: self._sent(name) for name in names}
        with grpc.insecure_channel(address) as channel:
            documents = {name: text_of(version).encode() for name, version in versions.items()}
            responses = iter(stub(channel).StartIngest(parts(documents), timeout=120))
            accepted = self.accepted.setdefault(next(responses).job.id, [])
            for response in responses:
                assert response.document.state == documents_pb2.JOB_DOCUMENT_STATE_QUEUED, response
                name = response.document.name
                self.possible[name] = {versions[name]}
                accepted.append(name)
                yield

    def _sent(self, name: str) -> int:
        version = next(self.numbers)
        self.possible[name] = self.possible.get(name, {None}) | {version}
        self.written.add(version)
        return version


@pytest.mark.soak
def test_a_daemon_killed_under_a_mixed_load_keeps_its_word(start: Callable[..., RunningDaemon], tmp_path: Path) -> None:
    draw = random.Random(20261122)
    numbers = itertools.count(1)
    loads = [
        Load(prefix, as_job, random.Random(draw.random()), numbers)
        for prefix, as_job in (("direct", False), ("other", False), ("job", True))
    ]
    daemon = start()
    for _ in range(_KILLS):
        kill_under(daemon, loads, draw.randint(1, 25), draw.uniform(0, 0.05))
        daemon = start()
        require_kept(daemon, loads, tmp_path / "compact.sqlite3")
    assert daemon.stop() == 0
    require_whole_database(daemon.data_dir / "documents.sqlite3")


def kill_under(daemon: RunningDaemon, loads: list[Load], acknowledgements: int, delay_s: float) -> None:
    """Puts the load on a daemon and kills it ``delay_s`` seconds after so many acknowledgements.

    The delay is there to have the kill hit any point of a change; nothing depends on which.
    """
    left = itertools.count(acknowledgements - 1, -1)
    killer = threading.Timer(delay_s, daemon.process.kill)

    def acknowledged() -> None:
        if next(left) == 0:
            killer.start()

    with ThreadPoolExecutor(len(loads)) as pool:
        running = [pool.submit(load.run, daemon.address, acknowledged) for load in loads]
        for each in running:
            each.add_done_callback(lambda _: daemon.process.kill())
    for each in running:
        each.result()
    killer.join()
    daemon.process.wait(30)


def require_kept(daemon: RunningDaemon, loads: list[Load], compact: Path) -> None:
    """Whatever was acknowledged is there and found, nothing else is, and no file has what is gone."""
    with Client(daemon.address) as client:
        for job in client.jobs(limit=100):
            if job.state is JobState.RUNNING:
                watch(daemon.address, job.job_id)
        stored = {info.name: info for info in client.documents()} if client.collections() else {}
        present: set[int] = set()
        for load in loads:
            for job_id, names in load.accepted.items():
                if not names:  # a job is written with its first document
                    continue
                states = final_states(watch(daemon.address, job_id))
                assert {states[name] for name in names} <= _STORED
            for name, possible in load.possible.items():
                held = held_by(client, name, possible) if name in stored else None
                assert held in possible, f"{name} has {held}, acknowledged was {possible}"
                load.possible[name] = {held}
                if held is not None:
                    present.add(held)
                    assert finders(client, held) == {name}
        gone = set().union(*(load.written for load in loads)) - present
        for version in gone:
            assert finders(client, version) == set()
        status = client.status()
        assert sum(status.collections.values()) == len(stored) == len(present)
        assert sum(index.vectors or 0 for index in status.indexes) == sum(info.chunks for info in stored.values())
    for file in stored_files(daemon.data_dir, compact):
        content = file.read_bytes()
        assert [version for version in gone if word_of(version).encode() in content] == [], file.name
    for load in loads:
        load.written = {version for version in load.written if version in present}
        load.accepted.clear()


def held_by(client: Client, name: str, possible: set[Version]) -> Version:
    text = client.document(name).text
    (held,) = (version for version in possible if version is not None and text_of(version) == text)
    return held


def finders(client: Client, version: int) -> set[str]:
    try:
        hits = client.search(word_of(version), SearchOptions(limit=20)).hits
    except ClientError as error:
        if error.status is CallStatus.NOT_FOUND:
            return set()
        raise
    return {hit.document for hit in hits if word_of(version) in hit.text}
