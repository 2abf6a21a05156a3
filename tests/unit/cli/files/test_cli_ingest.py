import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner

from edge_rag.api.v1 import documents_pb2
from edge_rag.cli.files.walk import FoundFile, UnusableFile, find_files
from edge_rag.cli.main import main
from tests.unit.cli.scripted_daemon import Handler, ScriptedDaemon, refusing


class ScriptedJobs:
    """Answers ``StartIngest`` and ``WatchJob`` as a daemon does that rejects what is empty and stores the rest."""

    def __init__(self, scripted: ScriptedDaemon) -> None:
        self.over = threading.Event()
        self.stored: list[documents_pb2.JobDocument] = []
        scripted.script("StartIngest", self.accept)
        scripted.script("WatchJob", self.watch)

    def accept(
        self, parts: Iterator[documents_pb2.IngestRequest], _: grpc.ServicerContext
    ) -> Iterator[documents_pb2.StartIngestResponse]:
        yield documents_pb2.StartIngestResponse(job=documents_pb2.Job(id="1f", state=documents_pb2.JOB_STATE_RUNNING))
        uploads: dict[str, bytes] = {}
        for part in parts:
            if part.HasField("header"):
                name = part.header.name
                uploads[name] = b""
            uploads[name] += part.content
        for name, content in uploads.items():
            self.stored.append(
                documents_pb2.JobDocument(
                    name=name, state=documents_pb2.JOB_DOCUMENT_STATE_ADDED, document_id=name, chunks=2
                )
                if content
                else documents_pb2.JobDocument(
                    name=name, state=documents_pb2.JOB_DOCUMENT_STATE_REJECTED, reason="the document holds no text"
                )
            )
            yield documents_pb2.StartIngestResponse(
                document=documents_pb2.JobDocument(name=name, state=documents_pb2.JOB_DOCUMENT_STATE_QUEUED)
            )
        self.over.set()

    def breaking_off(self, code: grpc.StatusCode, details: str) -> Handler:
        """Accepts one document and ends the call."""

        def accept(parts: Any, context: grpc.ServicerContext) -> Any:
            responses = self.accept(parts, context)
            yield next(responses)
            yield next(responses)
            context.abort(code, details)

        return accept

    def watch(
        self, request: documents_pb2.WatchJobRequest, context: grpc.ServicerContext
    ) -> Iterator[documents_pb2.WatchJobResponse]:
        assert self.over.wait(60)
        yield documents_pb2.WatchJobResponse(
            job=documents_pb2.Job(id="1f", state=documents_pb2.JOB_STATE_FINISHED),
            documents=self.stored[request.cursor :],
            cursor=len(self.stored),
        )


@pytest.fixture
def jobs(scripted: ScriptedDaemon) -> ScriptedJobs:
    return ScriptedJobs(scripted)


@pytest.fixture
def two(tmp_path: Path) -> str:
    """A folder of the documents a.md and b.md."""
    for name in ("a.md", "b.md"):
        (tmp_path / name).write_text("text")
    return str(tmp_path)


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
    leads_out = "a symbolic link out of the folder; name its target to include it"
    assert found(root) == [
        f"! away: {leads_out}",
        "! dangling.md: a broken symbolic link",
        "in.md",
        f"! out.md: {leads_out}",
        "real.md",
        "! self.md: a broken symbolic link",
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
    assert all(isinstance(entry, UnusableFile) for entry in entries)
    assert found(tmp_path, tmp_path / "none.md") == [
        "! caf�.md: its name is not valid UTF-8",
        "! none.md: no such file or directory",
    ]


def test_a_rejected_document_does_not_stop_the_others_and_ends_with_one(
    scripted: ScriptedDaemon, jobs: ScriptedJobs, tmp_path: Path
) -> None:
    (tmp_path / "a.md").write_text("")
    (tmp_path / "b.md").write_text("text")
    result = scripted.run("ingest", str(tmp_path), str(tmp_path / "gone.md"))
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "rejected   gone.md: no such file or directory",
        "rejected   a.md: the document holds no text",
        "added      b.md (2 passages)",
    ]
    assert "1 added, 2 rejected" in result.stderr


def test_a_state_that_only_a_newer_daemon_knows_is_reported_and_not_taken_for_stored(
    scripted: ScriptedDaemon, jobs: ScriptedJobs, two: str
) -> None:
    def watch(request: documents_pb2.WatchJobRequest, context: grpc.ServicerContext) -> Any:
        for reply in jobs.watch(request, context):
            reply.documents[0].MergeFrom(documents_pb2.JobDocument(state=4000, reason="quarantined"))  # type: ignore[arg-type]
            yield reply

    scripted.script("WatchJob", watch)
    result = scripted.run("ingest", two)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "unrecognized_4000  a.md (2 passages): quarantined",
        "added      b.md (2 passages)",
    ]
    assert "1 added, 1 unrecognized_4000" in result.stderr


def test_a_file_that_vanishes_is_reported_and_the_others_are_taken(
    scripted: ScriptedDaemon, jobs: ScriptedJobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.md", "b.md", "c.md"):
        (tmp_path / name).write_text("text")

    def vanishing(paths: tuple[Path, ...], _: object) -> Iterator[FoundFile | UnusableFile]:
        yield from tuple(find_files(paths))
        (tmp_path / "b.md").unlink()

    monkeypatch.setattr("edge_rag.cli.commands.documents.ingest.find_files", vanishing)
    result = scripted.run("ingest", str(tmp_path), "--json")
    report = json.loads(result.stdout)
    assert result.exit_code == 1
    assert [(document["name"], document["status"]) for document in report["documents"]] == [
        ("a.md", "added"),
        ("b.md", "rejected"),
        ("c.md", "added"),
    ]
    whole = {"name": "a.md", "status": "added", "reason": "", "id": "a.md", "pages": None, "chunks": 2}
    assert report["documents"][0] == whole
    assert report["documents"][1]["reason"] == "cannot be read: No such file or directory"
    assert (report["added"], report["rejected"], report["unchanged"]) == (2, 1, 0)
    assert scripted.calls["StartIngest"] == 1


def test_a_name_that_the_daemon_refuses_does_not_stop_the_others(
    scripted: ScriptedDaemon, jobs: ScriptedJobs, two: str
) -> None:
    scripted.script("StartIngest", refusing(grpc.StatusCode.INVALID_ARGUMENT, "name: must not mislead"), jobs.accept)
    result = scripted.run("ingest", two)
    assert result.exit_code == 1
    assert sorted(result.stdout.splitlines()) == [
        "added      b.md (2 passages)",
        "rejected   a.md: name: must not mislead",
    ]


def test_a_connection_that_breaks_while_files_are_handed_over_leaves_the_rest_to_another_job(
    scripted: ScriptedDaemon, jobs: ScriptedJobs, two: str
) -> None:
    gone = jobs.breaking_off(grpc.StatusCode.UNAVAILABLE, "the daemon is shutting down")
    scripted.script("StartIngest", gone, jobs.accept)
    result = scripted.run("ingest", "--json", two)
    report = json.loads(result.stdout)
    assert (result.exit_code, report["added"]) == (0, 2)
    assert scripted.calls["StartIngest"] == 2


def test_a_full_disk_ends_the_run_and_says_what_becomes_of_what_was_accepted(
    scripted: ScriptedDaemon, jobs: ScriptedJobs, two: str
) -> None:
    scripted.script("StartIngest", jobs.breaking_off(grpc.StatusCode.RESOURCE_EXHAUSTED, "the disk is full"))
    result = scripted.run("ingest", two)
    jobs.over.set()
    assert result.exit_code == 5
    assert "the disk is full" in result.stderr
    assert "edge-rag jobs watch 1f" in result.stderr
    assert scripted.calls["StartIngest"] == 1


def test_a_directory_without_files_is_an_error(runner: CliRunner, tmp_path: Path) -> None:
    result = runner.invoke(main, ["ingest", str(tmp_path)])
    assert result.exit_code == 1
    assert f"no files in {tmp_path}" in result.stderr


@pytest.mark.parametrize("arguments", [["ingest"], ["ingest", "--collection"]])
def test_ingest_needs_a_path(runner: CliRunner, arguments: list[str]) -> None:
    assert runner.invoke(main, arguments).exit_code == 2
