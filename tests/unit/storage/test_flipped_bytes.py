"""One flipped byte, in whatever file of the data directory: noticed, made good from the truth, or refused."""

import random
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from edge_rag.bootstrap.open_directory import OpenDirectory
from edge_rag.core.passage import RetrievalRequest, Retrieved
from edge_rag.errors import StorageError
from edge_rag.storage.database import Database, connect, require_whole_database
from edge_rag.storage.recovery.pages import RESERVED_BYTES, PageReader
from tests.unit.conftest import ingest
from tests.unit.retriever.hashed_words import HashedWords
from tests.unit.storage.test_repair import directory_with
from tests.unit.storage.test_storage_faults import require_consistent

_PAGE_BYTES = 4096
_HEADER_BYTES = 100
_FRAME_BYTES = 24 + _PAGE_BYTES
_LOG_HEADER_BYTES = 32
_RESERVED_AT = 20
_TEXTS = {f"{number}.txt": f"Valve {number} is serviced in month {number}. " * (1 + 40 * number) for number in range(4)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "data"
    directory_with(path, _TEXTS).close()
    return path


def everything(directory: OpenDirectory) -> object:
    """All that can be seen of a directory: records, texts and the passages of a search with their ranks."""
    infos = directory.documents.list("default", None, 100)
    texts = [directory.documents.get("default", info.name)[1] for info in infos]
    (found,) = directory.retriever.retrieve([RetrievalRequest("valve 2 month 3", "default", 50)])
    if not isinstance(found, Retrieved):
        raise found
    return infos, texts, [(hit.passage, hit.dense_rank, hit.lexical_rank) for hit in found.hits], found.term_weights


def read(path: Path) -> object:
    with closing(OpenDirectory(path, HashedWords())) as directory:
        return everything(directory)


def places(size: int) -> Iterator[int]:
    """Every byte of the database's header, and some of each page."""
    draw = random.Random(6)
    yield from range(_HEADER_BYTES)
    for start in range(0, size, _PAGE_BYTES):
        yield from (start + place for place in (*draw.sample(range(_PAGE_BYTES), 3), _PAGE_BYTES - 1))


def test_a_database_with_a_flipped_byte_is_not_opened_as_whole(whole: Path, tmp_path: Path) -> None:
    file = tmp_path / "documents.sqlite3"
    content = (whole / "documents.sqlite3").read_bytes()
    require_whole_database(whole / "documents.sqlite3")
    for place in places(len(content)):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        file.write_bytes(flipped)
        with pytest.raises(StorageError, match=r"doctor --repair|another program"):
            require_whole_database(file)
        with PageReader(file) as reader:
            assert place // _PAGE_BYTES + 1 in reader.damaged() or reader.header is None


@pytest.mark.parametrize("cut", [0, 1, _PAGE_BYTES, 3 * _PAGE_BYTES // 2])
def test_pages_checked_together_are_judged_like_each_alone(tmp_path: Path, cut: int) -> None:
    """In a database of several reads with damage, with newer pages in the log, and cut off."""
    file, draw = tmp_path / "documents.sqlite3", random.Random(8)
    database = Database(file)
    with database.writing() as connection:
        connection.execute("CREATE TABLE filler (content BLOB)")
        connection.executemany("INSERT INTO filler VALUES (?)", ((draw.randbytes(3000),) for _ in range(600)))
    database.close()
    writer = connect(file)
    writer.pragma("wal_autocheckpoint", 0)
    writer.execute("UPDATE filler SET content = x'00' WHERE rowid IN (5, 300, 590)")
    damaged = tmp_path / "damaged.sqlite3"
    shutil.copy(f"{file}-wal", f"{damaged}-wal")
    content = bytearray(file.read_bytes())
    writer.close()
    for place in draw.sample(range(_PAGE_BYTES, len(content)), 40):
        content[place] ^= 0x40
    damaged.write_bytes(content[: len(content) - cut])

    with PageReader(damaged) as reader:
        alone = [number for number in range(1, reader.count + 1) if reader.page(number) is None]
        assert len(alone) > 20
        assert list(reader.damaged()) == alone


def test_no_flipped_byte_of_the_database_changes_what_is_read(whole: Path, tmp_path: Path) -> None:
    """Whatever page is hit, what is served is as it was, or put together from what was."""
    texts = dict(_TEXTS)
    content = (whole / "documents.sqlite3").read_bytes()
    damaged = tmp_path / "data"
    for page in range(0, len(content) // _PAGE_BYTES):
        shutil.rmtree(damaged, ignore_errors=True)
        shutil.copytree(whole, damaged)
        flipped = bytearray(content)
        flipped[page * _PAGE_BYTES + page * 97 % _PAGE_BYTES] ^= 1 << page % 8
        (damaged / "documents.sqlite3").write_bytes(flipped)
        with closing(OpenDirectory(damaged, HashedWords())) as directory:
            assert directory.damage is not None
            assert directory.damage.lost == 0, f"page {page}"
            for info in directory.documents.list("default", None, 100):
                assert directory.documents.get("default", info.name)[1].split() == texts[info.name].split()
            assert directory.documents.document_counts() == {"default": len(texts)}
            require_consistent(directory, damaged / "recovery" / "documents.sqlite3")
        assert (damaged / "documents.sqlite3").read_bytes() == flipped


def test_no_flipped_byte_of_the_log_loses_a_transaction_in_front_of_its_end(whole: Path, tmp_path: Path) -> None:
    source, crashed = tmp_path / "source", tmp_path / "crashed"
    shutil.copytree(whole, source)
    with closing(OpenDirectory(source, HashedWords())) as directory:
        with closing(connect(source / "documents.sqlite3")) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM documents").fetchall()
            ingest(directory, "late.txt", "The filter is cleaned in month 3.")
            ingest(directory, "later.txt", "The seal is checked in month 4.")
            shutil.copytree(source, crashed)  # as a killed process would leave it
    expected = read_copy(crashed, tmp_path / "copy")
    log = (crashed / "documents.sqlite3-wal").read_bytes()
    frames = (len(log) - _LOG_HEADER_BYTES) // _FRAME_BYTES
    assert frames > 4
    before_last = _LOG_HEADER_BYTES + (frames - 1) * _FRAME_BYTES
    some = random.Random(8).sample(range(_LOG_HEADER_BYTES, before_last), 30)
    refused = saved = 0
    for place in (*range(0, _LOG_HEADER_BYTES, 3), *range(_LOG_HEADER_BYTES, _LOG_HEADER_BYTES + 24, 2), *some):
        flipped = bytearray(log)
        flipped[place] ^= 1 << place % 8
        (crashed / "documents.sqlite3-wal").write_bytes(flipped)
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        shutil.copytree(crashed, tmp_path / "copy")
        with closing(OpenDirectory(tmp_path / "copy", HashedWords())) as directory:
            if directory.damage is None:
                assert everything(directory) == expected, f"byte {place} of the log lost something"
                continue
            assert "before documents that were acknowledged" in directory.damage.problem
            refused += 1
            served = {info.name for info in directory.documents.list("default", None, 100)}
            assert served >= _TEXTS.keys(), f"byte {place}"
            saved += served == {*_TEXTS, "late.txt", "later.txt"}
    assert refused > 40
    assert saved >= 0.8 * refused


def read_copy(path: Path, copy: Path) -> object:
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(path, copy)
    return read(copy)


def test_a_log_that_was_cut_off_is_taken_up_to_the_cut(whole: Path, tmp_path: Path) -> None:
    with closing(OpenDirectory(tmp_path / "data", HashedWords())) as directory:
        ingest(directory, "a.txt", "The bearing of the pump")
        with closing(connect(tmp_path / "data" / "documents.sqlite3")) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM documents").fetchall()
            ingest(directory, "b.txt", "The colour of the paint")
            shutil.copytree(tmp_path / "data", tmp_path / "crashed")
    log = tmp_path / "crashed" / "documents.sqlite3-wal"
    log.write_bytes(log.read_bytes()[: -_FRAME_BYTES // 2])

    with closing(OpenDirectory(tmp_path / "crashed", HashedWords())) as directory:
        assert [info.name for info in directory.documents.list("default", None, 10)] == ["a.txt"]


@pytest.mark.parametrize("more_pages", [0, 2_000], ids=["fits the cache", "larger than the cache"])
def test_a_database_from_before_there_were_checksums_gets_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more_pages: int
) -> None:
    path = tmp_path / "data"
    with monkeypatch.context() as older:
        older.setattr("edge_rag.storage.database.reserve_checksums", lambda connection: None)
        older.setattr(Database, "_require_checksums", lambda database, connection: None)
        with closing(OpenDirectory(path, HashedWords())) as directory:
            for name, text in _TEXTS.items():
                ingest(directory, name, text)
            expected = everything(directory)
        with closing(connect(path / "documents.sqlite3")) as connection:
            newest = connection.pragma("user_version")
            connection.execute("CREATE TABLE more (content BLOB)")
            with connection:
                rows = ((random.Random(row).randbytes(_PAGE_BYTES),) for row in range(more_pages))
                connection.executemany("INSERT INTO more VALUES (?)", rows)
        assert (path / "documents.sqlite3").read_bytes()[_RESERVED_AT] == 0
    monkeypatch.setattr("edge_rag.storage.database.CHECKSUMS_SINCE", newest + 1)
    monkeypatch.setattr("edge_rag.storage.recovery.pages.CHECKSUMS_SINCE", newest + 1)

    assert read(path) == expected
    assert (path / "documents.sqlite3").read_bytes()[_RESERVED_AT] == RESERVED_BYTES


def test_nothing_acknowledged_depends_on_the_end_of_the_log(tmp_path: Path) -> None:
    with closing(OpenDirectory(tmp_path / "data", HashedWords())) as directory:
        ingest(directory, "a.txt", "The bearing of the pump")
        assert (tmp_path / "data" / "documents.sqlite3-wal").stat().st_size == 0


def test_words_of_a_deleted_or_replaced_document_are_in_no_file_any_more(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with closing(OpenDirectory(path, HashedWords())) as directory:
        for number in range(30):
            ingest(directory, f"{number}.txt", f"Machine {number} has keyword{number} in its papers. " * 30)
        ingest(directory, "secret.txt", "The combination is xylophone quagmire. " * 40)
        ingest(directory, "draft.txt", "The first draft says marzipan. " * 40)
        assert b"quagmir" in (path / "documents.sqlite3").read_bytes()

        directory.library.delete("default", "secret.txt")
        ingest(directory, "draft.txt", "The second says nothing of it.")

        for file in (file for file in path.rglob("*") if file.is_file()):
            content = file.read_bytes().lower()
            for trace in (b"xylophon", b"quagmir", b"marzipan"):
                assert trace not in content, f"{trace!r} is still in {file.name}"


def test_connections_are_opened_anew_after_the_disk_failed(tmp_path: Path) -> None:
    with closing(Database(tmp_path / "documents.sqlite3")) as database:
        with database.reading() as connection:
            before = connection
        with pytest.raises(StorageError, match="nothing that was acknowledged is lost"):
            with database.reading():
                raise apsw.IOError("disk I/O error")
        with database.reading() as connection:
            assert connection is not before
            assert connection.pragma("synchronous") == 2
