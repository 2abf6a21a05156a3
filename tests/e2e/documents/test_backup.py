"""Backups of a running daemon, put back into other data directories."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edge_rag.client import Client
from tests.e2e.support.jobs import start_job, watch
from tests.e2e.support.running_daemon import ROOT, RunningDaemon, ingest

Starter = Callable[..., RunningDaemon]


def edge_rag(*arguments: str) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "edge_rag.cli.main", *arguments, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, answer


@pytest.fixture(scope="module")
def saved(daemon: RunningDaemon, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("backup") / "all.edge-rag"
    code, answer = edge_rag("backup", str(file), "--server", daemon.address)
    assert code == 0, answer
    assert answer["bytes"] == file.stat().st_size
    return file


def contents(address: str) -> dict[str, str]:
    with Client(address) as client:
        return {info.name: client.document(info.document_id).text for info in client.documents()}


@pytest.mark.smoke
def test_what_was_backed_up_is_there_after_a_restore(
    daemon: RunningDaemon, saved: Path, start: Starter, tmp_path: Path
) -> None:
    code, answer = edge_rag("restore", str(saved), "--data-dir", str(tmp_path / "data"))
    assert (code, answer["documents"] > 0) == (0, True)

    restored = start()

    assert contents(restored.address) == contents(daemon.address)
    with Client(restored.address) as client, Client(daemon.address) as original:
        question = "How often must the pump bearings be greased?"
        assert client.search(question).hits == original.search(question).hits


def test_documents_that_wait_are_in_the_backup_and_are_stored_after_it(start: Starter, tmp_path: Path) -> None:
    long = "".join(f"Sentence {number} keeps the worker busy for a while.\n\n" for number in range(1500)).encode()
    waiting = {"long.txt": long, **{f"{n}.txt": f"Valve {n} is open.".encode() for n in range(4)}}
    source = start(tmp_path / "source")
    job_id, _ = start_job(source.address, waiting)
    with Client(source.address) as client, (tmp_path / "a.edge-rag").open("wb") as file:
        client.backup(file)
    assert re.search("method=Backup .*status=OK", source.log.read_text())
    watch(source.address, job_id)
    assert source.stop() == 0  # the bytes of a document go after its state has changed
    assert list((source.data_dir / "spool").iterdir()) == []

    assert edge_rag("restore", str(tmp_path / "a.edge-rag"), "--data-dir", str(tmp_path / "copy"))[0] == 0
    assert list((tmp_path / "copy" / "spool").iterdir()) != []
    copy = start(tmp_path / "copy")
    watch(copy.address, job_id)

    assert contents(copy.address) == {name: text.decode().strip() for name, text in waiting.items()}


def test_a_backup_of_damaged_documents_is_refused_and_no_file_is_left(start: Starter, tmp_path: Path) -> None:
    damaged = start()
    ingest(damaged.address, {"a.txt": b"The seal of the inlet valve is checked. " * 3000})
    with (tmp_path / "data" / "documents.sqlite3").open("r+b") as database:
        place = database.read().rindex(b"inlet valve")
        database.seek(place)
        database.write(b"o")
    (tmp_path / "harmed").mkdir()

    code, answer = edge_rag("backup", str(tmp_path / "harmed" / "a.edge-rag"), "--server", damaged.address)

    assert (code, answer["error"]["code"]) == (1, "DATA_LOSS")
    assert list((tmp_path / "harmed").iterdir()) == []


@pytest.mark.smoke
def test_an_existing_file_is_not_overwritten_unasked(daemon: RunningDaemon, saved: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.edge-rag"
    shutil.copy(saved, file)

    code, answer = edge_rag("backup", str(file), "--server", daemon.address)

    assert code == 1
    assert "--force" in answer["error"]["message"]
    assert file.read_bytes() == saved.read_bytes()
    assert edge_rag("backup", str(file), "--force", "--server", daemon.address)[0] == 0
