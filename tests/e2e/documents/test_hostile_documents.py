"""A real daemon takes hostile files and answers questions meanwhile."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from edge_rag.api.v1 import documents_pb2
from edge_rag.cli.main import main
from edge_rag.client import Client
from edge_rag.core.answer import Finished
from tests.e2e.support.running_daemon import RunningDaemon, ingest
from tests.support.hostile_files import hostile_files
from tests.support.pathological_files import endless_files

_CONFIG = "[ingest]\nparse_seconds = 8\n"
_CHOSEN = (
    "billion laughs",
    "flat bomb in a book",
    "flat bomb in a sheet",
    "a million open tags",
    "a million pages claimed",
    "deep XML",
    "mail in mail",
    "a cell of forty megabytes",
)


def answered(daemon: RunningDaemon) -> bool:
    with Client(daemon.address) as client:
        return isinstance(list(client.ask("At how many bar does the north valve open?"))[-1], Finished)


def test_questions_are_answered_while_hostile_files_are_refused(start: Callable[..., RunningDaemon]) -> None:
    daemon = start(config=_CONFIG)
    added, rejected = documents_pb2.INGEST_STATUS_ADDED, documents_pb2.INGEST_STATUS_REJECTED
    assert ingest(daemon.address, {"valve.txt": b"The north valve opens at 3 bar."})[0].status == added
    files = hostile_files()
    documents = {f"{what}/{files[what].name}": files[what].content() for what in _CHOSEN}
    documents["last/good.txt"] = b"The south valve opens at 4 bar."
    meanwhile = 0
    with ThreadPoolExecutor(1) as pool:
        taking = pool.submit(ingest, daemon.address, documents)
        while not taking.done():
            assert answered(daemon)
            meanwhile += 1
        outcomes = taking.result()
    assert [outcome.status for outcome in outcomes] == [rejected] * len(_CHOSEN) + [added]
    assert all(outcome.reason for outcome in outcomes[:-1])
    assert meanwhile > 1
    assert answered(daemon)


def test_a_parser_killed_in_mid_document_costs_that_document_only(start: Callable[..., RunningDaemon]) -> None:
    daemon = start(config=_CONFIG)
    assert ingest(daemon.address, {"a.txt": b"The north valve opens at 3 bar."})[0].status == (
        documents_pb2.INGEST_STATUS_ADDED
    )
    parser = next(
        child
        for child in psutil.Process(daemon.process.pid).children(recursive=True)
        if "edge_rag.ingest.parsing.sandbox.worker" in child.cmdline()
    )
    before = parser.cpu_times().user
    with ThreadPoolExecutor(1) as pool:
        documents = {"slow.html": b"<div>" * 3_000_000, "b.txt": b"The south valve opens at 4 bar."}
        taking = pool.submit(ingest, daemon.address, documents)
        while parser.cpu_times().user < before + 0.1:
            os.sched_yield()
        parser.kill()
        slow, after = taking.result()
    assert (slow.status, after.status) == (documents_pb2.INGEST_STATUS_REJECTED, documents_pb2.INGEST_STATUS_ADDED)
    assert "signal 9" in slow.reason


def test_a_small_document_that_needs_too_much_parsing_is_refused_with_the_reason_and_the_next_one_is_read(
    start: Callable[..., RunningDaemon],
) -> None:
    daemon = start(config="[ingest]\nparse_seconds = 2\n")
    documents = {what: make() for what, (_, make) in endless_files().items() if what == "a font table of RTF"}
    slow, after = ingest(daemon.address, {**documents, "b.txt": b"The south valve opens at 4 bar."})
    assert slow.status == documents_pb2.INGEST_STATUS_REJECTED
    assert "needs more than 2 s of parsing" in slow.reason or "longer than 2 s" in slow.reason
    assert after.status == documents_pb2.INGEST_STATUS_ADDED


@pytest.mark.smoke
def test_the_command_line_lists_what_it_cannot_take_from_a_folder_and_takes_the_rest(
    daemon: RunningDaemon, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "good.txt").write_text("The east valve opens at 5 bar.")
    (folder / "out.txt").symlink_to("/etc/hostname")
    os.mkfifo(folder / "pipe.txt")
    (folder / "line\nend.txt").write_text("x")
    (folder / "turned\u202efdp.exe").write_text("x")
    with (folder / "sparse.bin").open("wb") as sparse:
        sparse.truncate(256 << 20)
    result = CliRunner(env={"EDGE_RAG_SERVER": daemon.address}).invoke(
        main, ["ingest", "--collection", "hostile", str(folder)]
    )
    lines = {line.split(None, 2)[1].rstrip(":"): line for line in result.stdout.splitlines()}
    assert result.exit_code == 1
    assert "added" in lines["good.txt"]
    assert "a symbolic link out of the folder" in lines["out.txt"]
    assert "a pipe" in lines["pipe.txt"]
    assert "bytes, at most" in lines["sparse.bin"]
    assert result.stdout.count("rejected") == 5
    assert "\u202e" not in result.stdout
