"""Backups that are kept in the data directory."""

import errno
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from edge_rag.core.monitoring.status import BackupWay, CompletedBackup, StoredBackup
from edge_rag.errors import FileNotFound, NotReady, RequestCancelled, StorageFull
from edge_rag.storage.recovery.stored_backups import StoredBackups, is_backup_name

KEPT = 3
NOON = datetime(2026, 11, 23, 12, 0, 5, tzinfo=UTC)


def backups(folder: Path, now: datetime = NOON) -> StoredBackups:
    return StoredBackups(folder / "backups", KEPT, lambda: now)


def store(kept: StoredBackups, content: bytes = b"all documents") -> StoredBackup:
    return kept.store(iter([content[:5], content[5:]]), lambda: False)


def test_a_backup_is_kept_read_and_deleted(tmp_path: Path) -> None:
    kept = backups(tmp_path)
    assert (kept.list(), kept.last) == ((), None)

    made = store(kept)

    assert made == StoredBackup("20261123T120005Z.edge-rag", NOON, 13)
    assert kept.list() == (made,)
    assert b"".join(kept.read(made.name)) == b"all documents"
    assert (tmp_path / "backups" / made.name).stat().st_mode & 0o077 == 0
    reading = kept.read(made.name)
    assert kept.delete(made.name) == made
    assert b"".join(reading) == b"all documents"
    with pytest.raises(FileNotFound):
        kept.read(made.name)
    with pytest.raises(FileNotFound):
        kept.delete(made.name)


def test_the_oldest_of_too_many_go(tmp_path: Path) -> None:
    kept = backups(tmp_path)
    made = [store(kept).name for _ in range(KEPT + 2)]  # all in one second
    assert [backup.name for backup in kept.list()] == made[: -KEPT - 1 : -1]


def test_when_the_latest_was_complete_is_known_after_a_restart(tmp_path: Path) -> None:
    kept = backups(tmp_path)
    store(kept)
    assert backups(tmp_path).last == CompletedBackup(NOON, 13, BackupWay.STORED)

    kept.completed(99, BackupWay.SENT)
    assert kept.last == backups(tmp_path).last == CompletedBackup(NOON, 99, BackupWay.SENT)

    (tmp_path / "backups" / "last.json").write_text("{")
    assert backups(tmp_path).last is None


def test_nothing_is_left_of_a_backup_that_is_cancelled_or_finds_the_disk_full(tmp_path: Path) -> None:
    kept = backups(tmp_path)

    def fails() -> Iterator[bytes]:
        yield b"first"
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(RequestCancelled):
        kept.store(iter([b"first", b"second"]), lambda: True)
    with pytest.raises(StorageFull, match="no backup was made"):
        kept.store(fails(), lambda: False)

    assert list((tmp_path / "backups").iterdir()) == []
    assert kept.last is None


def test_a_second_backup_does_not_touch_the_one_that_is_being_made(tmp_path: Path) -> None:
    kept = backups(tmp_path)

    def refuses() -> Iterator[bytes]:
        if not made:
            raise NotReady("another backup is in progress")
        yield b""

    def first() -> Iterator[bytes]:
        yield b"all "
        with pytest.raises(NotReady):
            kept.store(refuses(), lambda: False)
        yield b"documents"

    made: list[StoredBackup] = []
    made.append(kept.store(first(), lambda: False))
    assert b"".join(kept.read(made[0].name)) == b"all documents"


def test_what_a_crash_left_goes_at_the_next_start(tmp_path: Path) -> None:
    (tmp_path / "backups").mkdir()
    partial = tmp_path / "backups" / "new.part"
    partial.write_bytes(b"half")
    assert backups(tmp_path).list() == ()
    assert not partial.exists()


@pytest.mark.parametrize("name", ["last.json", "../edge-rag.db", "20261123T120005Z.edge-rag\n", "", "x.edge-rag"])
def test_other_files_are_no_backups(tmp_path: Path, name: str) -> None:
    kept = backups(tmp_path)
    store(kept)
    assert not is_backup_name(name)
    with pytest.raises(FileNotFound):
        kept.read(name)
    with pytest.raises(FileNotFound):
        kept.delete(name)
