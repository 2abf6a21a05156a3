"""scripts/install-service below a root of its own: real daemons; only pip and systemctl are scripts of the test."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]

# Makes an "environment" that runs this checkout, instead of compiling it once more for every test.
PYTHON = f"""#!/bin/sh
case "$1 $2" in
    "-c "*) exit 0 ;;
    "-m venv") mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && exit ;;
    "-m pip") printf '#!%s\\n' "$0" >"${{0%/*}}/edge-rag"; exit ;;
esac
[ "$1" = -I ] && shift
PYTHONPATH={ROOT} exec {sys.executable} "$@"
"""

# Restarting starts the release in use as a daemon, unless its README says that it is broken.
SYSTEMCTL = """#!/bin/bash
echo "$*" >>{box}/asked
release={box}/system$(readlink {box}/system/opt/edge-rag/current)
stop() {{
    [ -s {box}/pid ] || return 0
    kill "$(cat {box}/pid)" 2>/dev/null
    tail --pid="$(cat {box}/pid)" -f /dev/null
}}
case "$1" in
    --version) echo "systemd 254 (254.1)" ;;
    is-active) kill -0 "$(cat {box}/pid)" 2>/dev/null ;;
    disable) stop ;;
    restart)
        stop
        ! grep -q broken "$release/share/README.md" || exit 1
        "$release/venv/bin/python" -m edge_rag.cli.main serve --config {box}/system/etc/edge-rag/edge-rag.toml \
            >{box}/log 2>&1 </dev/null &
        echo $! >{box}/pid
        "$release/venv/bin/python" -m edge_rag.cli.main status --server unix:{box}/s --wait 100 >/dev/null ;;
esac
"""


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Path]:
    """A checkout in small, a root, and the two scripts."""
    (tmp_path / "system" / "etc" / "edge-rag").mkdir(parents=True)
    tree = tmp_path / "checkout"
    for folder in ("scripts", "deploy", "edge_rag", "models"):
        (tree / folder).mkdir(parents=True)
    scripts = ("scripts/install-service", "deploy/edge-rag.toml", "pyproject.toml", "constraints.txt", "CMakeLists.txt")
    for file in scripts:
        shutil.copy(ROOT / file, tree / file)
    shutil.copytree(ROOT / "systemd", tree / "systemd")
    for file in ("README.md", "LICENSE"):
        (tree / file).write_text("first")
    for name, text in (("python", PYTHON), ("systemctl", SYSTEMCTL.format(box=tmp_path))):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    yield tmp_path
    if (tmp_path / "pid").exists():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def install(box: Path, *arguments: str, managed: bool = False, **environment: str) -> subprocess.CompletedProcess[str]:
    given = os.environ | {"PYTHON": str(box / "python")} | environment
    if managed:
        given["EDGE_RAG_SYSTEMCTL"] = str(box / "systemctl")
    command = ["bash", str(box / "checkout" / "scripts" / "install-service"), "--root", str(box / "system"), *arguments]
    return subprocess.run(command, env=given, capture_output=True, text=True, timeout=200)


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file() or path.is_symlink()}


def test_an_installation_serves_an_upgrade_that_does_not_is_undone_and_uninstalling_keeps_the_data(box: Path) -> None:
    root, asked = box / "system", box / "asked"
    settings = f'listen = "127.0.0.1:0"\nlocal_listen = "unix:{box}/s"\ndata_directory = "{root}/var/lib/edge-rag"\n'
    (root / "etc/edge-rag/edge-rag.toml").write_text(settings)
    result = install(box, "--drop-in", "cuda", managed=True)
    assert result.returncode == 0, result.stderr
    first = (root / "opt/edge-rag/current").readlink()
    assert (root / "etc/edge-rag/edge-rag.toml").read_text() == settings
    assert {"cuda.conf", "restart-backoff.conf"} == files(root / "etc/systemd/system/edge-rag.service.d")
    assert "restart edge-rag.service" in asked.read_text()

    (box / "checkout/README.md").write_text("broken")
    result = install(box, managed=True)
    assert result.returncode == 1
    assert "the upgrade was undone" in result.stderr
    assert (root / "opt/edge-rag/current").readlink() == first
    assert [path.name for path in (root / "opt/edge-rag/releases").iterdir()] == [first.name]
    assert len(list((root / "var/backups/edge-rag").iterdir())) == 1

    result = install(box, "uninstall", managed=True)
    assert result.returncode == 0, result.stderr
    left = files(root)
    assert any(name.startswith("var/lib/edge-rag/") for name in left)
    assert "etc/edge-rag/edge-rag.toml" in left
    assert not any(name.startswith(("opt/", "etc/systemd", "usr/")) for name in left)


def test_a_root_is_laid_out_for_the_place_it_will_have_and_nothing_is_started(box: Path) -> None:
    result = install(box)
    assert result.returncode == 0, result.stderr
    root = box / "system"
    assert not (box / "asked").exists()
    release = (root / "opt/edge-rag/current").readlink()
    assert release.is_absolute()
    assert release.parts[:3] == ("/", "opt", "edge-rag")
    script = (root / release.relative_to("/") / "venv/bin/edge-rag").read_text()
    assert script.startswith(f"#!{release}/venv/bin/python")
    settings = (root / "etc/edge-rag/edge-rag.toml").read_text().splitlines()
    assert 'local_listen = "unix:/run/edge-rag/edge-rag.sock"' in settings
    assert 'data_directory = "/var/lib/edge-rag"' in settings
    assert (root / "etc/systemd/system/multi-user.target.wants/edge-rag.service").exists()
    assert "installed already" in install(box).stderr


def test_a_release_that_does_not_start_changes_nothing(box: Path) -> None:
    before = files(box / "system")
    result = install(box, EDGE_RAG_THREADS="0")
    assert result.returncode == 1
    assert "Nothing was changed" in result.stderr
    assert "threads" in result.stderr
    assert files(box / "system") - before == {"run/lock/edge-rag-install.lock"}


def test_a_dry_run_prints_every_step_and_changes_nothing(box: Path) -> None:
    for arguments in (["--drop-in", "jetson"], ["uninstall"]):
        result = install(box, "--dry-run", *arguments, managed=True)
        assert result.returncode == 0, result.stderr
        assert "would run: " in result.stderr
    assert files(box / "system") == set()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--frobnicate"], "--frobnicate"),
        (["--wait", "soon"], "--wait"),
        (["--drop-in", "toaster"], "toaster"),
        (["--drop-in", "../edge-rag"], "../edge-rag"),
        (["--root"], "--root"),
        (["--root", "/no/such/folder"], "/no/such/folder"),
    ],
)
def test_a_contradictory_command_line_is_rejected(arguments: list[str], named: str, box: Path) -> None:
    result = install(box, *arguments)
    assert result.returncode == 2
    assert named in result.stderr
