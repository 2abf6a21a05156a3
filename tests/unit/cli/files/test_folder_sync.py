"""What a watch decides, what it looks at and what it remembers."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.cli.files.folder_sync import (
    Fate,
    Look,
    Remembered,
    look_at,
    read_state,
    state_file,
    work_for,
    write_state,
)
from edge_rag.errors import ConfigurationError, StorageCorrupt

_LOOKS = st.builds(Look, st.integers(0, 2), st.integers(0, 1), st.integers(0, 1), st.sampled_from(["", "not a file"]))
_FOLDERS = st.dictionaries(st.sampled_from("abcd"), _LOOKS)
_MEMORIES = st.dictionaries(
    st.sampled_from("abcd"),
    st.builds(Remembered, _LOOKS, st.sampled_from(Fate), st.sampled_from(["", "why"]), st.booleans()),
)


@given(_FOLDERS, _MEMORIES)
def test_after_two_equal_looks_every_difference_is_dealt_with(
    now: dict[str, Look], remembered: dict[str, Remembered]
) -> None:
    work = work_for(now, now, remembered)

    assert work.unsettled == ()
    changed = {name for name in now if name not in remembered or remembered[name].look != now[name]}
    assert {*work.hand_over, *work.refuse} == changed
    assert set(work.remove) == set(remembered) - set(now)
    dealt = {name: Remembered(look, Fate.TAKEN, "", True) for name, look in now.items()}
    again = work_for(now, now, dealt)
    assert (again.hand_over, again.refuse, again.remove, again.unsettled) == ((), (), (), ())


@given(_FOLDERS, _FOLDERS, _MEMORIES)
def test_what_still_changes_is_left_alone(
    now: dict[str, Look], before: dict[str, Look], remembered: dict[str, Remembered]
) -> None:
    work = work_for(now, before, remembered)

    assert all(now[name] == before.get(name) for name in work.hand_over)
    assert all(name not in before for name in work.remove)
    assert not {*work.hand_over, *work.refuse, *work.remove} & {*work.unsettled}


def test_a_failed_file_is_tried_again_only_when_it_changes() -> None:
    look, other = Look(1, 1, 1), Look(1, 2, 1)
    failed = {"a": Remembered(look, Fate.FAILED, "damaged", False)}

    assert work_for({"a": look}, {"a": look}, failed).hand_over == ()
    assert work_for({"a": other}, {"a": other}, failed).hand_over == ("a",)


def test_only_plain_files_of_the_folder_itself_are_handed_over(tmp_path: Path) -> None:
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

    looks = look_at(root, most_bytes=1000)

    assert {name for name, look in looks.items() if not look.refused} == {"a.txt", "sub/b.txt", "in.txt"}
    refused = {name: look.refused for name, look in looks.items() if look.refused}
    assert refused["pipe"] == refused["socket"] == "not a regular file"
    assert refused["out.txt"] == refused["out"] == "a symbolic link out of the folder"
    assert "--most-mib" in refused["large.bin"]
    assert [reason for name, reason in refused.items() if name.endswith(".txt") and "?" in name] == [
        "its name is not valid UTF-8"
    ]
    assert set(looks) & {".hidden", "nowhere.txt"} == set()


def test_a_folder_that_is_gone_is_no_empty_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        look_at(tmp_path / "gone", 1000)


def test_what_is_remembered_comes_back_and_damage_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "state" / "watch.json"
    remembered = {
        "a.txt": Remembered(Look(1, 2, 3), Fate.TAKEN, "", True),
        "ü.pdf": Remembered(Look(4, 5, 6, "too large"), Fate.FAILED, "too large", False),
    }
    assert read_state(path) == {}
    write_state(path, remembered)
    assert read_state(path) == remembered

    content = bytearray(path.read_bytes())
    for place in range(0, len(content), 7):
        flipped = bytearray(content)
        flipped[place] ^= 2
        path.write_bytes(flipped)
        try:
            assert read_state(path) == remembered
        except StorageCorrupt as error:
            assert "Remove it to begin anew" in str(error)


def test_each_folder_collection_and_server_has_a_memory_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    files = {state_file(Path(folder), collection, server) for folder in "ab" for collection in "cd" for server in "ef"}

    assert len(files) == 8
    assert all(file.is_relative_to(tmp_path) for file in files)
