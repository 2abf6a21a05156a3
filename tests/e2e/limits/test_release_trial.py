"""A release that is tried beside the running one, with a copy of its data."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edge_rag.client import Client
from tests.e2e.support.running_daemon import ROOT, RunningDaemon, model_variables, small_models

METADATA = "Metadata-Version: 2.1\nName: edge-rag\nVersion: 9.9\n"
VERSION = "import signal, sys\ndef main():\n    if '--version' in sys.argv:\n        return print('edge-rag 9.9')\n"
END = "if __name__ == '__main__':\n    main()\n"
FAILS = f"{VERSION}    sys.exit('no such board')\n{END}"
HANGS = f"{VERSION}    print('hangs', flush=True)\n    signal.pause()\n{END}"


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """A folder in which a trial leaves nothing."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    yield folder
    assert list(folder.iterdir()) == []


def command(release: Path, scratch: Path, data: Path) -> list[str]:
    arguments = ["upgrade", "--check", str(release), "--scratch", str(scratch), "--data-dir", str(data), "--json"]
    return [sys.executable, "-m", "edge_rag.cli.main", *arguments]


def check(release: Path, scratch: Path, data: Path) -> tuple[int, dict[str, Any]]:
    environment = os.environ | model_variables(small_models())
    done = subprocess.run(
        command(release, scratch, data), cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, answer


def wheel(folder: Path, main: str, metadata: str = METADATA) -> Path:
    path = folder / "edge_rag-9.9-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("edge_rag/__init__.py", "")
        archive.writestr("edge_rag/cli/__init__.py", "")
        archive.writestr("edge_rag/cli/main.py", main)
        archive.writestr("edge_rag-9.9.dist-info/METADATA", metadata)
    return path


def test_a_release_that_works_opens_the_data_and_answers_and_the_running_one_goes_on(
    daemon: RunningDaemon, scratch: Path, tmp_path: Path
) -> None:
    (tmp_path / "release").mkdir()
    (tmp_path / "release" / "venv").symlink_to(sys.prefix)
    with Client(daemon.address) as client:
        before = client.status().collections

    code, answer = check(tmp_path / "release", scratch, daemon.data_dir)

    assert code == 0, answer
    assert [(step["name"], step["ok"]) for step in answer["steps"]] == [
        (name, True) for name in ("install", "data", "start", "open", "answer")
    ]
    assert answer["needs"]["disk_bytes"] > 0
    assert answer["needs"]["memory_bytes"] > 0
    with Client(daemon.address) as client:
        assert client.status().collections == before


def test_a_release_that_does_not_start_fails_with_its_log(daemon: RunningDaemon, scratch: Path, tmp_path: Path) -> None:
    code, answer = check(wheel(tmp_path, FAILS), scratch, daemon.data_dir)
    assert code == 1
    assert [(step["name"], step["ok"]) for step in answer["steps"]] == [
        ("install", True),
        ("data", True),
        ("start", False),
    ]
    assert "it ended with exit code 1" in answer["steps"][-1]["detail"]
    assert "no such board" in answer["steps"][-1]["detail"]


def bundle(folder: Path, installer: str) -> Path:
    content = folder / "edge-rag-9.9-x86_64"
    content.mkdir()
    (content / "install.sh").write_text(f"#!/bin/sh\nset -e\n{installer}\n")
    (content / "install.sh").chmod(0o755)
    with tarfile.open(folder / "edge-rag-9.9-x86_64.tar", "w") as archive:
        archive.add(content, content.name)
    return folder / "edge-rag-9.9-x86_64.tar"


def test_a_bundle_is_installed_in_the_scratch_folder_and_tried(
    daemon: RunningDaemon, scratch: Path, tmp_path: Path
) -> None:
    release = bundle(tmp_path, f'test "$1" = --prefix\nln -s {sys.prefix} "$2"')
    code, answer = check(release, scratch, daemon.data_dir)
    assert code == 0, answer
    assert answer["steps"][-1]["name"] == "answer"


def test_a_bundle_that_cannot_be_installed_fails_with_what_its_installer_says(scratch: Path, tmp_path: Path) -> None:
    code, answer = check(bundle(tmp_path, "echo the bundle is damaged >&2\nexit 1"), scratch, tmp_path / "data")
    assert code == 2
    assert answer["error"]["message"].endswith("cannot be installed: the bundle is damaged")


def test_packages_that_a_wheel_lacks_are_named_and_other_files_are_refused(scratch: Path, tmp_path: Path) -> None:
    needs = METADATA + "Requires-Dist: no-such-package>=2\nRequires-Dist: numpy>=1\n"
    code, answer = check(wheel(tmp_path, FAILS, needs), scratch, tmp_path / "data")
    assert code == 2
    assert answer["error"]["message"].endswith(" needs no-such-package>=2, which this installation lacks")
    (tmp_path / "notes.whl").write_text("no wheel")
    assert "is not a wheel" in check(tmp_path / "notes.whl", scratch, tmp_path / "data")[1]["error"]["message"]


def test_ctrl_c_ends_the_release_and_leaves_nothing(daemon: RunningDaemon, scratch: Path, tmp_path: Path) -> None:
    trial = subprocess.Popen(
        command(wheel(tmp_path, HANGS), scratch, daemon.data_dir), cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    while not any(log.stat().st_size for log in scratch.glob("*/log")):  # it runs
        assert trial.poll() is None
    trial.send_signal(signal.SIGINT)
    assert trial.wait(60) == 130
    assert trial.stdout is not None
    trial.stdout.close()
