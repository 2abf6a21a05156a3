"""A watched folder: its documents follow real changes of real files."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edge_rag.client import Client
from tests.e2e.support.running_daemon import ROOT, RunningDaemon, ingest


class Watch:
    """A running ``edge-rag watch``, whose events are waited for."""

    def __init__(self, server: str, folder: Path, collection: str, state: Path) -> None:
        command = [sys.executable, "-m", "edge_rag.cli.main", "watch", str(folder), "--collection", collection]
        command += ["--server", server, "--settle", "0.1", "--json"]
        self._environment = {**os.environ, "XDG_STATE_HOME": str(state), "PYTHONUNBUFFERED": "1"}
        self._command = command
        self.process = subprocess.Popen(command, cwd=ROOT, env=self._environment, stdout=subprocess.PIPE, text=True)

    def events(self, count: int) -> set[tuple[str, str]]:
        assert self.process.stdout is not None
        lines = [json.loads(self.process.stdout.readline()) for _ in range(count)]
        return {(line["event"], line["name"]) for line in lines}

    def end(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60)

    def status(self) -> dict[str, str]:
        done = subprocess.run(
            [*self._command, "--status"], cwd=ROOT, env=self._environment, capture_output=True, text=True, check=True
        )
        return {each["name"]: each["reason"] for each in json.loads(done.stdout)["failed"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    made.mkdir()
    return made


@pytest.fixture
def watching(daemon: RunningDaemon, folder: Path, tmp_path: Path) -> Iterator[Callable[[str], Watch]]:
    started: list[Watch] = []

    def start(collection: str) -> Watch:
        started.append(Watch(daemon.address, folder, collection, tmp_path / "state"))
        return started[-1]

    yield start
    for watch in started:
        watch.process.kill()
        watch.process.wait(30)
        assert watch.process.stdout is not None
        watch.process.stdout.close()


def stored(address: str, collection: str) -> dict[str, str]:
    with Client(address) as client:
        return {
            info.name: client.document(info.document_id, collection=collection).text
            for info in client.documents(collection=collection)
        }


@pytest.mark.smoke
def test_documents_follow_their_files(daemon: RunningDaemon, folder: Path, watching: Callable[[str], Watch]) -> None:
    place = "watch-follow"
    ingest(daemon.address, {"mine.txt": b"Ingested by somebody else."}, place)
    (folder / "a.txt").write_text("The first version of a.")
    (folder / "mine.txt").write_text("Ingested by somebody else.")
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7 rubbish")
    os.mkfifo(folder / "pipe")
    watch = watching(place)
    assert watch.events(4) == {
        ("added", "a.txt"),
        ("unchanged", "mine.txt"),
        ("failed", "broken.pdf"),
        ("failed", "pipe"),
    }

    (folder / "a.txt").write_text("The second version of a.")
    assert watch.events(1) == {("replaced", "a.txt")}
    (folder / "sub").mkdir()
    (folder / "a.txt").rename(folder / "sub" / "b.txt")
    assert watch.events(2) == {("added", "sub/b.txt"), ("removed", "a.txt")}
    (folder / "broken.pdf").write_text("Not a PDF at all, but it was repaired to be text.")
    (folder / "broken.pdf").rename(folder / "repaired.txt")
    assert watch.events(1) == {("added", "repaired.txt")}
    (folder / "repaired.txt").unlink()
    (folder / "mine.txt").unlink()
    assert ("removed", "repaired.txt") in watch.events(1)

    assert stored(daemon.address, place) == {
        "mine.txt": "Ingested by somebody else.",
        "sub/b.txt": "The second version of a.",
    }
    assert watch.end() == 130
    assert watch.status() == {"pipe": "not a regular file"}


def test_what_happened_while_nobody_watched_is_followed_at_the_start(
    daemon: RunningDaemon, folder: Path, watching: Callable[[str], Watch]
) -> None:
    place = "watch-restart"
    for name in ("kept", "changed", "deleted"):
        (folder / f"{name}.txt").write_text(f"The file {name} at first.")
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7 rubbish")
    first = watching(place)
    assert len(first.events(4)) == 4
    assert first.end() == 130
    assert "damaged" in first.status()["broken.pdf"]

    (folder / "changed.txt").write_text("The file changed since then.")
    (folder / "deleted.txt").unlink()
    (folder / "new.txt").write_text("The file that is new.")
    second = watching(place)

    assert second.events(3) == {("replaced", "changed.txt"), ("removed", "deleted.txt"), ("added", "new.txt")}
    assert set(stored(daemon.address, place)) == {"kept.txt", "changed.txt", "new.txt"}
    second.process.send_signal(signal.SIGTERM)
    assert second.process.wait(60) == 130
