"""Ingest as jobs: accepted for good, followed, resumed after a kill, cancelled."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from edge_rag.api.v1 import documents_pb2
from edge_rag.client import Client
from edge_rag.core.documents.jobs import IngestPhase, JobState
from edge_rag.pipeline.ingest_policy import IngestLimits
from tests.e2e.support.jobs import final_states, parts, start_job, stub, watch
from tests.e2e.support.running_daemon import ROOT, RunningDaemon, ingest, start_daemon

Starter = Callable[..., RunningDaemon]


def texts(count: int, sentences: int = 3) -> dict[str, bytes]:
    return {
        f"{number}.txt": "".join(
            f"Valve {number} of line {part} is serviced in month {number % 12}.\n\n" for part in range(sentences)
        ).encode()
        for number in range(count)
    }


def occupy(address: str, place: str) -> list[str]:
    """Starts as many jobs with a long document as one client has places for; returns them when all are in work."""
    jobs = []
    for number in range(IngestLimits().of_owner):
        long = "".join(f"Sentence {part} keeps place {number} busy for a while.\n\n" for part in range(6000)).encode()
        job_id, _ = start_job(address, {f"long-{number}.txt": long}, place)
        jobs.append(job_id)
        with Client(address) as client:
            for progress in client.watch_job(job_id):
                if progress.work is not None and progress.work.phase is IngestPhase.EMBEDDING:
                    break
    return jobs


def test_accepted_documents_are_stored_although_the_daemon_is_killed(start: Starter, tmp_path: Path) -> None:
    first = start()
    documents = texts(12, sentences=60)
    with grpc.insecure_channel(first.address) as channel:
        responses = iter(stub(channel).StartIngest(parts(documents), timeout=120))
        job_id = next(responses).job.id
        accepted = [next(responses).document.name for _ in range(8)]
        first.process.kill()
        with pytest.raises(grpc.RpcError):
            accepted += [response.document.name for response in responses]
    first.process.wait(30)

    second = start()
    pages = watch(second.address, job_id)

    states = final_states(pages)
    assert pages[-1].job.state == documents_pb2.JOB_STATE_FINISHED
    assert {states[name] for name in accepted} == {"added"}
    assert set(states) >= set(accepted)
    with Client(second.address) as client:
        assert {info.name for info in client.documents()} == set(states)
        for name in accepted:
            assert client.document(name).text.startswith(documents[name].decode().split("\n")[0])
    assert second.stop() == 0  # the bytes of a document go after its state has changed
    assert list((tmp_path / "data" / "spool").iterdir()) == []


def test_what_is_ingested_or_deleted_directly_is_newer_than_what_waits(daemon: RunningDaemon) -> None:
    place = "job-order"
    ingest(daemon.address, {"b.txt": b"The old text of b."}, place)
    busy = occupy(daemon.address, place)
    job_id, _ = start_job(
        daemon.address, {"a.txt": b"The waiting text of a.", "b.txt": b"The waiting text of b."}, place
    )

    ingest(daemon.address, {"a.txt": b"The direct text of a."}, place)
    with Client(daemon.address) as client:
        client.delete("b.txt", collection=place)
        assert {job.job_id for job in client.jobs() if job.state is JobState.RUNNING} >= set(busy)
        states = final_states(watch(daemon.address, job_id))
        assert states == {"a.txt": "superseded", "b.txt": "superseded"}
        for long in busy:
            client.cancel_job(long)
        assert client.document("a.txt", collection=place).text == "The direct text of a."
        assert {info.name for info in client.documents(collection=place)} == {"a.txt"}


class Ingesting:
    """A running ``edge-rag ingest`` of a folder with one long document between short ones."""

    def __init__(self, address: str, folder: Path, *options: str) -> None:
        folder.mkdir()
        long = "".join(f"Sentence {number} keeps the worker busy for a while.\n\n" for number in range(3000))
        for name, content in {"0.txt": "Valve 0 is open.", "1-long.txt": long, "2.txt": "Valve 2 is open."}.items():
            (folder / name).write_text(content)
        command = [sys.executable, "-m", "edge_rag.cli.main", "ingest", str(folder), "--server", address, *options]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def first_line(self) -> str:
        """Returns the first line, and leaves what follows to ``end``, which would not see it in a buffer."""
        assert self.process.stdout is not None
        line = b""
        while not line.endswith(b"\n") and (byte := os.read(self.process.stdout.fileno(), 1)):
            line += byte
        return line.decode()

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=300)
        return self.process.returncode, out, err


def all_accepted(address: str, count: int) -> str:
    """Waits until the latest job was handed over so many documents; returns its id."""
    with Client(address) as client:
        (job,) = client.jobs(limit=1)
        for progress in client.watch_job(job.job_id):
            if sum(progress.job.documents.values()) == count:
                return job.job_id
    raise AssertionError("the job ended before")


def test_the_command_line_goes_on_over_a_restart_of_the_daemon(start: Starter, tmp_path: Path) -> None:
    first = start()
    ingesting = Ingesting(first.address, tmp_path / "folder")
    state, stored_first = ingesting.first_line().split()[:2]
    assert (state, stored_first in ("0.txt", "2.txt")) == ("added", True)  # small documents overtake a long one
    all_accepted(first.address, 3)
    first.process.kill()
    first.process.wait(30)
    second = start_daemon(first.data_dir, tmp_path / "log-again", listen=first.address)
    try:
        code, out, err = ingesting.end()
        with Client(second.address) as client:
            stored = {info.name for info in client.documents()}
    finally:
        second.process.kill()
        second.process.communicate(timeout=30)

    assert code == 0, err
    rest = {"0.txt", "1-long.txt", "2.txt"} - {stored_first}
    assert sorted(line.split()[:2] for line in out.splitlines()) == [["added", name] for name in sorted(rest)]
    assert "3 added" in err
    assert stored == {"0.txt", "1-long.txt", "2.txt"}


def test_ctrl_c_leaves_what_was_accepted_to_its_job_and_names_it(daemon: RunningDaemon, tmp_path: Path) -> None:
    ingesting = Ingesting(daemon.address, tmp_path / "folder", "--collection", "job-interrupted")
    ingesting.first_line()
    job_id = all_accepted(daemon.address, 3)
    ingesting.process.send_signal(signal.SIGINT)
    code, _, err = ingesting.end()

    assert code == 130
    assert f"edge-rag jobs watch {job_id}" in err
    assert f"edge-rag jobs cancel {job_id}" in err
    assert set(final_states(watch(daemon.address, job_id)).values()) == {"added"}
