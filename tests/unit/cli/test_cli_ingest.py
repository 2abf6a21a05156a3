from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner

from edge_rag.api.v1 import documents_pb2
from edge_rag.cli.main import main
from edge_rag.cli.walk import FoundFile, Unusable, find_files
from tests.unit.cli.scripted_daemon import ScriptedDaemon, refusing


def outcome(name: str, status: documents_pb2.IngestStatus.ValueType, reason: str = "") -> documents_pb2.IngestResponse:
    document = None if reason else documents_pb2.Document(id=name, name=name, chunks=2)
    return documents_pb2.IngestResponse(
        outcomes=[documents_pb2.IngestResponse.Outcome(name=name, status=status, document=document, reason=reason)]
    )


def take(parts: Iterator[documents_pb2.IngestRequest], _: grpc.ServicerContext) -> documents_pb2.IngestResponse:
    name = next(iter(parts)).header.name
    content = b"".join(part.content for part in parts)
    if not content:
        return outcome(name, documents_pb2.INGEST_STATUS_REJECTED, "the document holds no text")
    return outcome(name, documents_pb2.INGEST_STATUS_ADDED)


def found(*paths: Path) -> list[str]:
    return [
        entry.name if isinstance(entry, FoundFile) else f"! {entry.name}: {entry.reason}" for entry in find_files(paths)
    ]


def test_a_directory_is_walked_in_order_without_hidden_files(tmp_path: Path) -> None:
    for name in ("b.md", "a.txt", "deep/er/c.pdf", ".hidden.md", ".git/config", "deep/.cache/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text")
    assert found(tmp_path) == ["a.txt", "b.md", "deep/er/c.pdf"]


def test_a_path_that_is_given_is_taken_whatever_its_name(tmp_path: Path) -> None:
    (tmp_path / ".notes.md").write_text("text")
    assert found(tmp_path / ".notes.md") == [".notes.md"]


def test_links_are_followed_only_inside_the_directory_given(tmp_path: Path) -> None:
    outside = tmp_path / "secret.txt"
    outside.write_text("secret")
    root = tmp_path / "docs"
    (root / "sub").mkdir(parents=True)
    (root / "real.md").write_text("text")
    (root / "in.md").symlink_to(root / "real.md")
    (root / "out.md").symlink_to(outside)
    (root / "sub" / "loop").symlink_to(root, target_is_directory=True)
    (root / "dangling.md").symlink_to(root / "gone.md")
    (root / "self.md").symlink_to(root / "self.md")
    (root / "away").symlink_to(tmp_path, target_is_directory=True)
    leads_out = "a link that leads out of the folder; give what it leads to by itself if you want it"
    assert found(root) == [
        f"! away: {leads_out}",
        "! dangling.md: a link that leads nowhere",
        "in.md",
        f"! out.md: {leads_out}",
        "real.md",
        "! self.md: a link that leads nowhere",
    ]


def test_what_is_no_file_is_listed_and_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket.txt"))
        assert found(tmp_path) == [
            "! pipe.txt: a pipe, not a regular file",
            "! socket.txt: a socket, not a regular file",
        ]
    assert found(Path("/dev/null")) == ["! null: a device, not a regular file"]


def test_two_files_of_one_name_are_not_taken_for_one_document(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "readme.md").write_text(folder)
    assert found(tmp_path / "a", tmp_path / "b") == [
        "readme.md",
        f"! readme.md: the same name as {tmp_path / 'a' / 'readme.md'}",
    ]


def test_a_name_that_is_not_utf8_and_a_path_that_is_not_there_are_reported(tmp_path: Path) -> None:
    (tmp_path / "caf\udce9.md").write_text("text")
    entries = list(find_files([tmp_path, tmp_path / "none.md"]))
    assert all(isinstance(entry, Unusable) for entry in entries)
    assert found(tmp_path, tmp_path / "none.md") == [
        "! caf�.md: its name is not valid UTF-8",
        "! none.md: no such file or directory",
    ]


def test_a_rejected_document_does_not_stop_the_others_and_ends_with_one(
    runner: CliRunner, scripted: ScriptedDaemon, tmp_path: Path
) -> None:
    (tmp_path / "a.md").write_text("")
    (tmp_path / "b.md").write_text("text")
    scripted.script("Ingest", take)
    result = runner.invoke(main, ["ingest", str(tmp_path), str(tmp_path / "gone.md"), "--server", scripted.address])
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "rejected   a.md: the document holds no text",
        "added      b.md (2 passages)",
        "rejected   gone.md: no such file or directory",
    ]
    assert "1 added, 2 rejected" in result.stderr


def test_a_file_that_vanishes_is_reported_and_the_others_are_taken(
    runner: CliRunner, scripted: ScriptedDaemon, tmp_path: Path
) -> None:
    for name in ("a.md", "b.md", "c.md"):
        (tmp_path / name).write_text("text")

    def take_and_remove(parts: Any, context: grpc.ServicerContext) -> documents_pb2.IngestResponse:
        (tmp_path / "b.md").unlink(missing_ok=True)
        return take(parts, context)

    scripted.script("Ingest", take_and_remove)
    result = runner.invoke(main, ["ingest", str(tmp_path), "--json", "--server", scripted.address])
    report = json.loads(result.stdout)
    assert result.exit_code == 1
    assert [(document["name"], document["status"]) for document in report["documents"]] == [
        ("a.md", "added"),
        ("b.md", "rejected"),
        ("c.md", "added"),
    ]
    assert report["documents"][1]["reason"] == "cannot be read: No such file or directory"
    assert (report["added"], report["rejected"], report["unchanged"]) == (2, 1, 0)
    assert scripted.calls["Ingest"] == 2


def test_a_daemon_that_goes_away_ends_the_run(runner: CliRunner, scripted: ScriptedDaemon, tmp_path: Path) -> None:
    for name in ("a.md", "b.md"):
        (tmp_path / name).write_text("text")
    scripted.script("Ingest", refusing(grpc.StatusCode.RESOURCE_EXHAUSTED, "the disk is full"))
    result = runner.invoke(main, ["ingest", str(tmp_path), "--server", scripted.address])
    assert result.exit_code == 5
    assert "the disk is full" in result.stderr
    assert scripted.calls["Ingest"] == 1


def test_a_directory_without_files_is_an_error(runner: CliRunner, tmp_path: Path) -> None:
    result = runner.invoke(main, ["ingest", str(tmp_path)])
    assert result.exit_code == 1
    assert f"no files in {tmp_path}" in result.stderr


@pytest.mark.parametrize("arguments", [["ingest"], ["ingest", "--collection"]])
def test_ingest_needs_a_path(runner: CliRunner, arguments: list[str]) -> None:
    assert runner.invoke(main, arguments).exit_code == 2
