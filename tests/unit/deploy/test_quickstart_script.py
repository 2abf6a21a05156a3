"""The parts of scripts/quickstart that can be run without installing: a copy in an empty tree."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TOOLS = ("bash", "dirname", "mkdir", "flock", "find", "sort", "xargs", "sha256sum", "cut", "sed", "rm", "grep", "tr")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with the script, something to install, and a PATH that holds only basic tools."""
    for folder in ("scripts", "edge_rag", "models", "bin"):
        (tmp_path / folder).mkdir()
    shutil.copy(ROOT / "scripts" / "quickstart", tmp_path / "scripts")
    for name in ("pyproject.toml", "constraints.txt", "CMakeLists.txt", "README.md", "LICENSE"):
        (tmp_path / name).write_text("")
    for tool in TOOLS:
        place = shutil.which(tool)
        assert place is not None
        (tmp_path / "bin" / tool).symlink_to(place)
    return tmp_path


def python(tree: Path, version: str, can_make_environments: bool) -> None:
    """Puts an interpreter on the tree's PATH that answers the script's questions only."""
    minor = int(version.split(".")[1])
    script = f"""#!/bin/sh
case "$2" in
    *sys.exit*) exit {int(minor < 11)} ;;
    *print*) echo {version} ;;
    *ensurepip*) exit {int(not can_make_environments)} ;;
esac
"""
    (tree / "bin" / "python3").write_text(script)
    (tree / "bin" / "python3").chmod(0o755)


def quickstart(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(tree / "bin"), "HOME": str(tree)}
    command = [str(tree / "bin" / "bash"), str(tree / "scripts" / "quickstart"), *arguments]
    return subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("version", "can_make_environments", "package"),
    [("3.10", True, "python3"), ("3.12", False, "python3.12-venv"), ("3.12", True, "g++")],
)
def test_what_is_missing_is_named_with_the_package_to_install(
    tree: Path, version: str, can_make_environments: bool, package: str
) -> None:
    python(tree, version, can_make_environments)
    result = quickstart(tree)
    assert result.returncode == 1
    assert f"apt-get install {package}" in result.stderr


def test_stop_without_a_daemon_is_no_error(tree: Path) -> None:
    result = quickstart(tree, "--stop")
    assert result.returncode == 0
    assert "No daemon" in result.stderr


def test_a_stale_pid_of_another_program_is_ignored(tree: Path) -> None:
    (tree / ".edge-rag").mkdir()
    (tree / ".edge-rag" / "daemon.pid").write_text(f"{os.getpid()}\n")
    assert "No daemon" in quickstart(tree, "--stop").stderr


def test_help_is_printed_and_an_unknown_option_is_refused(tree: Path) -> None:
    assert "scripts/quickstart --stop" in quickstart(tree, "--help").stdout
    assert quickstart(tree, "--frobnicate").returncode == 2
