"""Deleting is the way out of a full disk, so it works on one; a read-only disk is named as such."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_DISK_MIB = 40


def _can_mount() -> bool:
    command = ["unshare", "--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return shutil.which("unshare") is not None and subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.skipif(not _can_mount(), reason="needs a mount namespace of its own")
@pytest.mark.parametrize("what", ["document", "collection"])
def test_what_is_deleted_on_a_full_disk_is_gone_from_every_file(tmp_path: Path, what: str) -> None:
    """One by one with the disk filled up again after each, and a whole collection that is larger than the reserve."""
    run(tmp_path, what)


@pytest.mark.skipif(not _can_mount(), reason="needs a mount namespace of its own")
def test_a_read_only_disk_is_named_and_loses_nothing(tmp_path: Path) -> None:
    run(tmp_path, "read-only")


def run(tmp_path: Path, what: str) -> None:
    script = f'mount -t tmpfs -o size={_DISK_MIB}m tmpfs "$1" && exec "$2" "$3" "$1" {what}'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", str(tmp_path)]
    command += [sys.executable, str(Path(__file__).with_name("full_disk.py"))]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(_ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
