import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.cli.files.folder_sync import (
    FileState,
    SyncedFile,
    SyncStatus,
    plan_sync,
    read_state,
    scan_folder,
    state_file,
    write_state,
)
from edge_rag.errors import ConfigurationError, StorageCorrupt

_STATES = st.builds(
    FileState, st.integers(0, 2), st.integers(0, 1), st.integers(0, 1), st.sampled_from(["", "not a file"])
)
_FOLDERS = st.dictionaries(st.sampled_from("abcd"), _STATES)
_SYNCED = st.dictionaries(
    st.sampled_from("abcd"),
    st.builds(SyncedFile, _STATES, st.sampled_from(SyncStatus), st.sampled_from(["", "why"]), st.booleans()),
)


@given(_FOLDERS, _SYNCED)
def test_after_two_equal_scans_every_difference_is_planned(
    current: dict[str, FileState], synced: dict[str, SyncedFile]
) -> None:
    plan = plan_sync(current, current, synced)

    assert plan.unsettled == ()
    changed = {name for name in current if name not in synced or synced[name].state != current[name]}
    assert {*plan.upload, *plan.reject} == changed
    assert set(plan.delete) == set(synced) - set(current)
    done = {name: SyncedFile(state, SyncStatus.UPLOADED, "", True) for name, state in current.items()}
    again = plan_sync(current, current, done)
    assert (again.upload, again.reject, again.delete, again.unsettled) == ((), (), (), ())


@given(_FOLDERS, _FOLDERS, _SYNCED)
def test_a_file_that_still_changes_is_not_planned(
    current: dict[str, FileState], previous: dict[str, FileState], synced: dict[str, SyncedFile]
) -> None:
    plan = plan_sync(current, previous, synced)

    assert all(current[name] == previous.get(name) for name in plan.upload)
    assert all(name not in previous for name in plan.delete)
    assert not {*plan.upload, *plan.reject, *plan.delete} & {*plan.unsettled}


def test_a_failed_file_is_retried_only_when_it_changes() -> None:
    state, other = FileState(1, 1, 1), FileState(1, 2, 1)
    failed = {"a": SyncedFile(state, SyncStatus.FAILED, "damaged", False)}

    assert plan_sync({"a": state}, {"a": state}, failed).upload == ()
    assert plan_sync({"a": other}, {"a": other}, failed).upload == ("a",)


def test_only_regular_files_inside_the_folder_are_uploaded(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    (root / "sub").mkdir(parents=True)
    elsewhere.mkdir()
    (elsewhere / "secret.txt").write_text("secret")
    (root / "a.txt").write_text("a")
    (root / "sub" / "b.txt").write_text("b")
    (root / ".hidden").write_text("hidden")
    (root / "large.bin").write_bytes(bytes(2000))
    os.truncate(root / "large.bin", 1 << 40)
    (root / "out.txt").symlink_to(elsewhere / "secret.txt")
    (root / "out").symlink_to(elsewhere)
    (root / "in.txt").symlink_to(root / "a.txt")
    (root / "nowhere.txt").symlink_to(root / "nothing")
    os.mkfifo(root / "pipe")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(root / "socket"))
    listening.close()
    (root / os.fsdecode(b"\xff.txt")).write_text("no utf-8")

    found = scan_folder(root, max_bytes=1000)

    assert {name for name, state in found.items() if not state.problem} == {"a.txt", "sub/b.txt", "in.txt"}
    problems = {name: state.problem for name, state in found.items() if state.problem}
    assert problems["pipe"] == problems["socket"] == "not a regular file"
    assert problems["out.txt"] == problems["out"] == "a symbolic link out of the folder"
    assert "--most-mib" in problems["large.bin"]
    assert [reason for name, reason in problems.items() if name.endswith(".txt") and "?" in name] == [
        "its name is not valid UTF-8"
    ]
    assert set(found) & {".hidden", "nowhere.txt"} == set()


def test_a_missing_folder_is_an_error_and_not_empty(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        scan_folder(tmp_path / "gone", 1000)


def test_the_state_file_round_trips_and_damage_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "state" / "watch.json"
    synced = {
        "a.txt": SyncedFile(FileState(1, 2, 3), SyncStatus.UPLOADED, "", True),
        "ü.pdf": SyncedFile(FileState(4, 5, 6, "too large"), SyncStatus.FAILED, "too large", False),
    }
    assert read_state(path) == {}
    write_state(path, synced)
    assert read_state(path) == synced

    content = bytearray(path.read_bytes())
    for place in range(0, len(content), 7):
        flipped = bytearray(content)
        flipped[place] ^= 2
        path.write_bytes(flipped)
        try:
            assert read_state(path) == synced
        except StorageCorrupt as error:
            assert "Delete it to start over" in str(error)


def test_each_folder_collection_and_server_has_its_own_state_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    files = {state_file(Path(folder), collection, server) for folder in "ab" for collection in "cd" for server in "ef"}

    assert len(files) == 8
    assert all(file.is_relative_to(tmp_path) for file in files)
