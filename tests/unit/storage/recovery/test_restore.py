"""A backup put into a data directory."""

import random
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from edge_rag.bootstrap.open_directory import DirectoryOptions, OpenDirectory
from edge_rag.errors import BackupInvalid, ConfigurationError
from edge_rag.storage.backup import TOKEN_VECTORS, unpack
from edge_rag.storage.database import Database
from edge_rag.storage.migrations import NEWEST_SCHEMA
from edge_rag.storage.recovery.restore import restore
from edge_rag.storage.vectors import StoredVectors
from tests.unit.conftest import ingest
from tests.unit.retriever.hashed_words import HashedWords

_CHECKSUM = range(148, 156)
"""Place of the checksum in a header of tar."""


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A backup of a data directory with one document."""
    directory = OpenDirectory(tmp_path / "source", HashedWords(), DirectoryOptions())
    ingest(directory, "a.txt", "The bearing of the pump.")
    archive = tmp_path / "saved.edge-rag"
    archive.write_bytes(b"".join(directory.backups.make({})))
    directory.close()
    return archive


def directory_id(path: Path) -> str:
    with closing(Database(path / "documents.sqlite3")) as database:
        return StoredVectors(database, "").directory()


def test_every_directory_restored_from_a_backup_has_an_id_of_its_own(saved: Path, tmp_path: Path) -> None:
    for name in ("one", "other"):
        restore(saved, tmp_path / name, replace=False)

    assert len({directory_id(tmp_path / name) for name in ("source", "one", "other")}) == 3


def test_a_directory_whose_documents_are_replaced_keeps_its_id(saved: Path, tmp_path: Path) -> None:
    OpenDirectory(tmp_path / "data", HashedWords(), DirectoryOptions()).close()
    before = directory_id(tmp_path / "data")

    restore(saved, tmp_path / "data", replace=True)

    assert directory_id(tmp_path / "data") == before


def test_documents_that_are_there_are_only_replaced_on_demand(saved: Path, tmp_path: Path) -> None:
    with closing(OpenDirectory(tmp_path / "data", HashedWords())) as directory:
        ingest(directory, "old.txt", "The old document.")
    with pytest.raises(ConfigurationError, match="--replace"):
        restore(saved, tmp_path / "data", replace=False)
    restore(saved, tmp_path / "data", replace=True)
    with closing(OpenDirectory(tmp_path / "data", HashedWords())) as directory:
        assert [info.name for info in directory.documents.list("default", None, 9)] == ["a.txt"]


def test_a_damaged_database_is_put_aside(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "documents.sqlite3").write_bytes(b"no database at all, but long enough to be read as one. " * 200)
    restore(saved, tmp_path, replace=True)
    assert (tmp_path / "documents.sqlite3.damaged").exists()


@pytest.mark.parametrize("newer", [False, True])
def test_what_is_no_backup_or_one_of_a_newer_version_changes_nothing(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newer: bool
) -> None:
    if newer:
        monkeypatch.setattr("edge_rag.storage.recovery.restore.NEWEST_SCHEMA", NEWEST_SCHEMA - 1)
    else:
        saved.write_bytes(b"PK\x03\x04" + bytes(5000))
    with pytest.raises(BackupInvalid, match=saved.name):
        restore(saved, tmp_path / "data", replace=False)
    assert {path.name for path in (tmp_path / "data").iterdir()} <= {"lock"}


def test_token_vectors_of_replaced_documents_go_with_them(saved: Path, tmp_path: Path) -> None:
    OpenDirectory(tmp_path / "data", HashedWords(), DirectoryOptions()).close()
    (tmp_path / "data" / TOKEN_VECTORS).write_bytes(b"of text that is replaced")

    restore(saved, tmp_path / "data", replace=True)

    assert not (tmp_path / "data" / TOKEN_VECTORS).exists()


def test_a_backup_of_more_than_the_cache_of_the_database_holds_is_whole(tmp_path: Path) -> None:
    """What spills from SQLite's cache while the copy is made has its checksums too."""
    text = "".join(
        f"Valve {number} of line {number % 17} is serviced in month {number % 12}.\n\n" for number in range(40_000)
    )
    directory = OpenDirectory(tmp_path / "source", HashedWords(), DirectoryOptions())
    ingest(directory, "long.txt", text)
    archive = tmp_path / "saved.edge-rag"
    archive.write_bytes(b"".join(directory.backups.make({})))
    directory.close()
    assert archive.stat().st_size > 4 << 20

    restore(archive, tmp_path / "copy", replace=False)

    restored = OpenDirectory(tmp_path / "copy", HashedWords(), DirectoryOptions())
    (info,) = restored.documents.list("default", None, 10)
    assert restored.documents.get("default", info.document_id)[1] == text.strip()
    restored.close()


@pytest.mark.parametrize("behind", [b"\0", b"appended", bytes(512), b"x" * (3 << 20)], ids=["0", "text", "block", "3M"])
def test_bytes_behind_the_end_of_a_backup_are_refused_with_its_name(saved: Path, tmp_path: Path, behind: bytes) -> None:
    """No hash covers them, so they are not part of what was backed up."""
    with saved.open("ab") as file:
        file.write(behind)

    with pytest.raises(BackupInvalid, match=rf"{saved.name} is not .* backup: .*\d bytes follow its end"):
        restore(saved, tmp_path / "data", replace=False)

    assert not (tmp_path / "data" / "documents.sqlite3").exists()


def test_no_flipped_byte_of_a_backup_is_restored(saved: Path, tmp_path: Path) -> None:
    """Contents, fill bytes and the end count, and headers but for their own checksum, which has more than one form."""
    content = saved.read_bytes()
    with tarfile.open(saved) as members:
        checksums = {member.offset + place for member in members for place in _CHECKSUM}
    draw = random.Random(9)
    places = {*range(1024), *range(len(content) - 3072, len(content)), *draw.sample(range(len(content)), 200)}
    for place in places - checksums:
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        saved.write_bytes(flipped)
        with pytest.raises(BackupInvalid, match=saved.name):
            unpack(saved, None)


def test_no_shortened_backup_is_restored(saved: Path, tmp_path: Path) -> None:
    content = saved.read_bytes()
    for size in {0, 1, 512, len(content) // 2, *range(len(content) - 1600, len(content), 7), len(content) - 1}:
        saved.write_bytes(content[:size])
        with pytest.raises(BackupInvalid, match=saved.name):
            unpack(saved, None)
