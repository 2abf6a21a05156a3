"""A library made of what is whole of a damaged one, of a backup and of source files."""

import random
import shutil
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from edge_rag.bootstrap.open_directory import OpenDirectory
from edge_rag.core.documents.jobs import Ticket
from edge_rag.errors import DataDirectoryInUse, StorageCorrupt, StorageError, StorageReadOnly
from edge_rag.storage.data_directory import DataDirectory
from edge_rag.storage.recovery.pages import PageReader
from edge_rag.storage.recovery.repair import LibraryRepair, Origin, Repair, diagnose
from tests.unit.conftest import ingest
from tests.unit.retriever.hashed_words import HashedWords
from tests.unit.storage.test_storage_faults import documents_with, require_consistent

_PAGE_BYTES = 4096
_TEXTS = {
    f"{number}.txt": f"Valve {number} has keyword{'abcdefgh'[number]} in its papers. " * (1 + 60 * number)
    for number in range(8)
}


def directory_with(path: Path, texts: Mapping[str, str]) -> OpenDirectory:
    directory = OpenDirectory(path, HashedWords())
    for name, text in texts.items():
        ingest(directory, name, text)
    return directory


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "data"
    directory_with(path, _TEXTS).close()
    return path


@pytest.fixture
def damaged(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "data")
    return tmp_path / "data"


def flip(directory: Path, pages: Iterable[int]) -> bytes:
    """Flips a byte of each page; returns the database as it is then."""
    database = directory / "documents.sqlite3"
    content = bytearray(database.read_bytes())
    for page in pages:
        content[(page - 1) * _PAGE_BYTES + page * 31 % _PAGE_BYTES] ^= 4
    database.write_bytes(content)
    return bytes(content)


def pages_of(directory: Path, document: str) -> set[int]:
    with PageReader(directory / "documents.sqlite3") as reader:
        rows = [(page, row) for page in range(1, reader.count + 1) for row in reader.rows(page, page)]
    (number,) = (row.number for _, row in rows if row.types.startswith("nti") and document in row.values)
    return {
        page
        for page, row in rows
        if (row.types.startswith("niii") and row.values[1] == number) or document in row.values
    }


def repaired(directory: Path, backup: Path | None = None, source: Path | None = None) -> Repair:
    with LibraryRepair(directory, backup, source) as repair:
        repair.prepare()
        return repair.put_in_place()


def backup_of(path: Path, folder: Path) -> Path:
    with closing(OpenDirectory(path, HashedWords())) as directory:
        (folder / "backup.edge-rag").write_bytes(b"".join(directory.backups.make({})))
    return folder / "backup.edge-rag"


def origins(repair: Repair) -> dict[str, Origin]:
    return {document.name: document.origin for document in repair.documents}


def require_served(path: Path, names: set[str]) -> None:
    with closing(OpenDirectory(path, HashedWords())) as directory:
        assert directory.damage is None
        assert {info.name for info in directory.documents.list("default", None, 100)} == names
        require_consistent(directory, path / "documents.sqlite3")
        for name in names - {"0.txt"}:
            word = f"keyword{'abcdefgh'[int(name[0])]}"
            assert documents_with(directory, word) == {name}


def test_whatever_page_is_damaged_nothing_is_lost_and_the_damaged_file_is_kept(damaged: Path, tmp_path: Path) -> None:
    """One page at a time: the other pages tell what it held, but for records that had no second place."""
    count = (damaged / "documents.sqlite3").stat().st_size // _PAGE_BYTES
    for page in random.Random(3).sample(range(1, count + 1), 12):
        copy = tmp_path / f"page-{page}"
        shutil.copytree(damaged, copy)
        content = flip(copy, [page])

        repair = repaired(copy)

        assert repair.count(Origin.LOST) == 0
        assert origins(repair).keys() == _TEXTS.keys()
        assert repair.damaged_pages == 1
        assert repair.kept_in is not None
        assert (repair.kept_in / "documents.sqlite3").read_bytes() == content
        require_served(copy, set(_TEXTS))
        assert diagnose(copy) is None


def test_a_document_that_is_lost_altogether_is_named_and_taken_from_backup_or_source(
    whole: Path, damaged: Path, tmp_path: Path
) -> None:
    backup = backup_of(whole, tmp_path)
    source = tmp_path / "source"
    source.mkdir()
    (source / "5.txt").write_text(_TEXTS["5.txt"])
    flip(damaged, pages_of(damaged, "5.txt"))
    for name in ("none", "backup"):
        shutil.copytree(damaged, tmp_path / name)

    alone = repaired(tmp_path / "none")
    of_backup = repaired(tmp_path / "backup", backup=backup)
    of_source = repaired(damaged, source=source)

    assert origins(alone)["5.txt"] is Origin.LOST
    assert origins(of_backup)["5.txt"] is Origin.BACKUP
    assert origins(of_source)["5.txt"] is Origin.SOURCE
    require_served(tmp_path / "backup", set(_TEXTS))
    with closing(OpenDirectory(damaged, HashedWords())) as directory:
        (job,) = directory.jobs.jobs(10)
        assert job.documents != {}
        (queued,) = directory.jobs.waiting("", "")
        assert directory.jobs.upload(Ticket(queued.order)).content.read().decode() == _TEXTS["5.txt"]


def test_a_document_that_was_deleted_after_the_backup_stays_deleted(damaged: Path, tmp_path: Path) -> None:
    backup = backup_of(damaged, tmp_path)
    with closing(OpenDirectory(damaged, HashedWords())) as directory:
        directory.library.delete("default", "7.txt")
    flip(damaged, [1])

    repair = repaired(damaged, backup=backup)

    require_served(damaged, set(_TEXTS) - {"7.txt"})
    assert "7.txt" not in origins(repair)


def test_an_emptied_database_is_made_again_from_a_backup_with_its_originals(damaged: Path, tmp_path: Path) -> None:
    backup = backup_of(damaged, tmp_path)
    (damaged / "documents.sqlite3").write_bytes(b"")
    next((damaged / "originals").iterdir()).unlink()

    repair = repaired(damaged, backup=backup)

    assert set(origins(repair).values()) == {Origin.BACKUP}
    require_served(damaged, set(_TEXTS))
    with closing(OpenDirectory(damaged, HashedWords())) as directory:
        for name, text in _TEXTS.items():
            with closing(directory.documents.open_original("default", name)[1]) as file:
                assert file.read(0, file.size_bytes) == text.encode()


def test_the_name_of_a_document_leads_to_no_file_outside_the_source_folder(damaged: Path, tmp_path: Path) -> None:
    """Names come from whoever may write; the repair reads as whoever runs it."""
    outside = tmp_path / "outside.txt"
    outside.write_text("The secret of the host. " * 50)
    with closing(OpenDirectory(damaged, HashedWords())) as directory:
        ingest(directory, str(outside), "Anything else is written here. " * 30)
    flip(damaged, pages_of(damaged, str(outside)))
    (tmp_path / "source").mkdir()

    repair = repaired(damaged, source=tmp_path / "source")

    assert origins(repair)[str(outside)] is Origin.LOST


def test_a_whole_library_is_left_alone(damaged: Path) -> None:
    before = {path: path.read_bytes() for path in damaged.rglob("*") if path.is_file() and path.name != "lock"}

    with LibraryRepair(damaged) as repair:
        assert repair.prepare().problem is None

    assert {path: path.read_bytes() for path in before} == before


def test_nothing_changes_before_the_repair_is_put_in_place(damaged: Path) -> None:
    content = flip(damaged, [3])

    with LibraryRepair(damaged) as repair:
        assert repair.prepare().problem is not None

    assert (damaged / "documents.sqlite3").read_bytes() == content
    assert not list(damaged.glob("damaged-*"))
    assert not (damaged / "repair.part").exists()


def test_a_directory_in_use_is_not_repaired(damaged: Path) -> None:
    with DataDirectory(damaged), pytest.raises(DataDirectoryInUse), LibraryRepair(damaged):
        pass


def test_recovery_mode_serves_and_changes_nothing(damaged: Path) -> None:
    content = flip(damaged, [3, 20])
    with closing(OpenDirectory(damaged, HashedWords())) as directory:
        damage = directory.damage
        assert damage is not None
        assert "2 of" in damage.problem
        assert damage.kept + damage.rebuilt == len(_TEXTS)
        assert documents_with(directory, "keywordd") == {"3.txt"}
        with pytest.raises(StorageReadOnly, match="doctor --repair"):
            ingest(directory, "new.txt", "Something new.")
        with pytest.raises(StorageReadOnly, match="doctor --repair"):
            directory.library.delete("default", "3.txt")
        with pytest.raises(StorageReadOnly, match="backed up"):
            next(directory.backups.make({}))

    assert (damaged / "documents.sqlite3").read_bytes() == content


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        ("empty", "it is empty, while spool and vectors of its documents are there"),
        ("missing", "it is missing, while spool and vectors of its documents are there"),
        ("text", "it does not start like a database of SQLite"),
    ],
)
def test_a_database_of_which_nothing_is_left_is_not_taken_for_a_new_one(damaged: Path, harm: str, says: str) -> None:
    database = damaged / "documents.sqlite3"
    match harm:
        case "empty":
            database.write_bytes(b"")
        case "missing":
            database.unlink()
        case "text":
            database.write_bytes(b"what is here is no database. " * 3000)

    for _ in range(2):
        with pytest.raises(StorageCorrupt, match=f"{says}.*doctor --repair.*restore --replace"):
            OpenDirectory(damaged, HashedWords())

    assert repaired(damaged).documents == ()
    with closing(OpenDirectory(damaged, HashedWords())) as directory:
        assert directory.documents.document_counts() == {}


def test_a_database_that_is_cut_off_is_served_up_to_there(damaged: Path) -> None:
    database = damaged / "documents.sqlite3"
    size = database.stat().st_size
    left = size // _PAGE_BYTES * 3 // 4 * _PAGE_BYTES
    with database.open("r+b") as file:
        file.truncate(left)

    with closing(OpenDirectory(damaged, HashedWords())) as directory:
        assert directory.damage is not None
        assert f"{left:,} of {size:,} bytes are there" in directory.damage.problem
        assert (
            directory.damage.kept + directory.damage.rebuilt == len(directory.documents.list("default", None, 100)) > 0
        )


@pytest.mark.parametrize("application_id", [0, 0x47504B47])
def test_the_database_of_another_program_is_not_touched(tmp_path: Path, application_id: int) -> None:
    database = tmp_path / "documents.sqlite3"
    with closing(apsw.Connection(str(database))) as connection:
        connection.execute(f"PRAGMA application_id = {application_id}")
        connection.execute("CREATE TABLE contacts (name TEXT)")
    content = database.read_bytes()

    with pytest.raises(StorageError, match="belongs to another program"):
        OpenDirectory(tmp_path, HashedWords())

    assert database.read_bytes() == content
    with LibraryRepair(tmp_path) as repair:
        if application_id:
            with pytest.raises(StorageError, match="belongs to another program"):
                repair.prepare()


def test_a_directory_in_which_a_first_start_was_killed_is_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "documents.sqlite3").write_bytes(b"")

    with closing(OpenDirectory(tmp_path, HashedWords())) as directory:
        assert directory.documents.document_counts() == {}
