import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from edge_rag.cli.files.folder_sync import scan_folder
from edge_rag.cli.files.selection import FileSelection, is_system_folder
from edge_rag.cli.files.walk import FoundFile, UnusableFile, find_files
from edge_rag.cli.main import main
from tests.unit.cli.files.test_cli_ingest import ScriptedJobs
from tests.unit.cli.scripted_daemon import ScriptedDaemon

NAMES = ("a.md", "b.pdf", "drafts/c.md", "deep/drafts/d.md", "deep/old/e.tmp", "deep/old/keep.md")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "manuals"
    for name in NAMES:
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text("text")
    return made


def taken(folder: Path, include: tuple[str, ...] = (), exclude: tuple[str, ...] = ()) -> set[str]:
    return {entry.name for entry in find_files([folder], FileSelection.of(include, exclude))}


@pytest.mark.parametrize(
    ("include", "exclude", "names"),
    [
        ((), (), set(NAMES)),
        (("*.pdf",), (), {"b.pdf"}),
        (("*.md",), ("drafts/",), {"a.md", "deep/old/keep.md"}),
        (("deep/**/*.md",), (), {"deep/drafts/d.md", "deep/old/keep.md"}),
        ((), ("/drafts/", "*.tmp", "?.pdf"), {"a.md", "deep/drafts/d.md", "deep/old/keep.md"}),
        ((), ("deep/old",), {"a.md", "b.pdf", "drafts/c.md", "deep/drafts/d.md"}),
        ((), ("a.md/",), set(NAMES)),
    ],
)
def test_patterns_choose_the_files_of_a_folder(
    folder: Path, include: tuple[str, ...], exclude: tuple[str, ...], names: set[str]
) -> None:
    assert taken(folder, include, exclude) == names


def test_the_ignore_file_of_a_folder_is_followed_by_ingest_and_watch(folder: Path) -> None:
    (folder / ".edgeragignore").write_text("# not yet\n*.md\n!keep.md\n\ndrafts/\n")
    assert taken(folder) == {"b.pdf", "deep/old/e.tmp", "deep/old/keep.md"}
    assert set(scan_folder(folder, 1 << 20)) == taken(folder)
    assert [entry.name for entry in find_files([folder / "a.md"])] == ["a.md"]


def test_a_dry_run_lists_what_would_be_ingested_and_calls_no_daemon(folder: Path, runner: CliRunner) -> None:
    (folder / "gone.md").symlink_to("nowhere")
    arguments = ["ingest", "--dry-run", "--exclude", "deep/", "--server", "127.0.0.1:1", str(folder)]
    shown = runner.invoke(main, arguments)
    assert shown.exit_code == 1
    assert "would ingest  a.md (4 bytes)" in shown.stdout
    assert "would reject  gone.md: a broken symbolic link" in shown.stdout
    assert "would ingest 3 files (12 bytes, 2 .md, 1 .pdf) into collection default" in shown.stderr
    listed = json.loads(runner.invoke(main, [*arguments, "--json"]).stdout)
    assert [file["name"] for file in listed["would_ingest"]] == ["a.md", "b.pdf", "drafts/c.md"]
    assert [file["name"] for file in listed["would_reject"]] == ["gone.md"]


@pytest.mark.parametrize("folder", ["/", "/usr", "/etc", "/proc/self", "/usr/lib"])
def test_system_folders_are_refused_unless_told(folder: str, runner: CliRunner) -> None:
    refused = runner.invoke(main, ["ingest", "--dry-run", folder])
    assert (refused.exit_code, "--system-folders" in refused.stderr) == (2, True), refused.output
    assert is_system_folder(Path(folder))
    assert not is_system_folder(Path("/usr/share/doc"))


def test_what_a_folder_holds_is_told_before_it_is_ingested_and_quiet_is_quiet(
    folder: Path, scripted: ScriptedDaemon
) -> None:
    ScriptedJobs(scripted)
    shown = scripted.run("ingest", str(folder))
    assert shown.stderr.startswith("ingesting 6 files (24 bytes, 4 .md, 1 .pdf, 1 .tmp) into collection default\n")
    ScriptedJobs(scripted)
    (folder / "empty.md").write_text("")
    quiet = scripted.run("ingest", "--quiet", str(folder))
    assert (quiet.stdout, quiet.stderr) == ("rejected   empty.md: the document holds no text\n", "")


def test_files_that_are_rejected_alike_are_counted_in_one_line(tmp_path: Path, scripted: ScriptedDaemon) -> None:
    ScriptedJobs(scripted)
    for number in range(40):
        (tmp_path / f"{number:02}.md").write_text("")
    shown = scripted.run("ingest", str(tmp_path))
    reason = "the document holds no text"
    named = [f"rejected   {number:02}.md: {reason}" for number in range(3)]
    assert shown.stdout.splitlines() == [*named, f"rejected   37 more: {reason}"]
    assert "40 rejected" in shown.stderr


def test_more_than_500_files_are_ingested_only_after_a_question_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runner: CliRunner
) -> None:
    files = [FoundFile(tmp_path / f"{number}.md", f"{number}.md") for number in range(501)]
    asked: list[str] = []

    def found(*_: object) -> Iterator[FoundFile | UnusableFile]:
        yield from files

    def confirm(question: str, **_: object) -> None:
        asked.append(question)
        raise click.Abort

    monkeypatch.setattr("edge_rag.cli.commands.documents.ingest.find_files", found)
    monkeypatch.setattr("edge_rag.cli.commands.documents.ingest.on_terminal", lambda: True)
    monkeypatch.setattr(click, "confirm", confirm)
    arguments = ["ingest", "--server", "127.0.0.1:1", str(tmp_path)]
    assert runner.invoke(main, arguments).exit_code == 130
    assert asked == ["Ingest 501 files?"]
    for unasked in ([*arguments, "--yes"], [*arguments, "--json"]):
        assert runner.invoke(main, unasked).exit_code == 3
    files.pop()
    assert runner.invoke(main, arguments).exit_code == 3
    assert len(asked) == 1
