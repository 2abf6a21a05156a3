"""A data directory is private: its daemon's user reaches it, nobody else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from edge_rag.errors import DataDirectoryNotPrivate, StorageError
from edge_rag.storage.data_directory import DataDirectory, make_private

_OTHER_USER = 54_321
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away and mounts")


def modes(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.lstat().st_mode & 0o777 for path in (folder, *folder.rglob("*"))}


def filled(folder: Path) -> Path:
    (folder / "spool").mkdir(parents=True)
    (folder / "spool" / "1").write_text("a document")
    (folder / "documents.sqlite3").write_text("all documents")
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


def test_a_new_directory_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with DataDirectory(tmp_path / "data"):
            assert modes(tmp_path / "data") == {".": 0o700, "lock": 0o600}
    finally:
        os.umask(before)


def test_one_that_others_can_read_becomes_private_with_all_in_it(tmp_path: Path) -> None:
    data = filled(tmp_path / "data")
    assert make_private(data) == 4
    with DataDirectory(data):
        assert modes(data) == {".": 0o700, "spool": 0o700, "spool/1": 0o600, "documents.sqlite3": 0o600, "lock": 0o600}
    assert make_private(data) == 0


def test_links_and_files_with_another_name_elsewhere_are_left_alone(tmp_path: Path) -> None:
    data = filled(tmp_path / "data")
    for name in ("linked", "named"):
        (tmp_path / name).write_text("outside")
        (tmp_path / name).chmod(0o644)
    (data / "link").symlink_to(tmp_path / "linked")
    (data / "broken").symlink_to(tmp_path / "nowhere")
    (data / "model").hardlink_to(tmp_path / "named")
    make_private(data)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("linked", "named")] == [0o644, 0o644]
    assert data.stat().st_mode & 0o777 == 0o700


@needs_root
def test_one_of_another_user_is_refused_with_what_to_do(tmp_path: Path) -> None:
    data = filled(tmp_path / "data")
    os.chown(data, _OTHER_USER, _OTHER_USER)
    with pytest.raises(DataDirectoryNotPrivate, match=rf"belongs to the user {_OTHER_USER} .* `chown -R`"):
        DataDirectory(data)
    assert data.stat().st_mode & 0o777 == 0o755
    assert not (data / "lock").exists()


@needs_root
@pytest.mark.parametrize("planted", ["documents.sqlite3", "spool", "spool/1"])
def test_one_with_something_of_another_user_in_it_is_refused_by_name(tmp_path: Path, planted: str) -> None:
    data = filled(tmp_path / "data")
    os.chown(data / planted, _OTHER_USER, _OTHER_USER)
    with pytest.raises(DataDirectoryNotPrivate, match=f"{planted} belongs to the user {_OTHER_USER}"):
        DataDirectory(data)


@needs_root
def test_one_whose_mode_cannot_be_changed_is_refused_with_what_to_do(tmp_path: Path) -> None:
    data = filled(tmp_path / "data")
    script = (
        f"mount --bind {data} {data} && mount -o remount,ro,bind {data} && exec python3 -P -c "
        "'import sys; from pathlib import Path; from edge_rag.storage.data_directory import make_private;"
        "make_private(Path(sys.argv[1]))' " + str(data)
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, env=environment, check=False
    )
    if "unshare" in done.stderr and "edge_rag" not in done.stderr:
        pytest.skip(f"no mount namespace: {done.stderr}")
    assert "DataDirectoryNotPrivate" in done.stderr
    assert "Read-only file system" in done.stderr
    assert "chmod -R go=" in done.stderr


def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be used: Not a directory"):
        make_private(tmp_path / "file" / "data")
