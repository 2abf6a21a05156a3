"""Collections in Milvus follow the database, whatever is missed, and move there and back. On a real milvus-lite."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edge_rag.bootstrap.open_directory import DirectoryOptions, MilvusAddress, OpenDirectory
from edge_rag.core.documents.collection import BackendKind
from edge_rag.core.ids import require_recognized
from edge_rag.core.monitoring.status import IndexKind
from edge_rag.core.passage import RetrievalRequest, Retrieved
from edge_rag.errors import ConfigurationError, StorageError
from edge_rag.storage.recovery.restore import restore
from tests.unit.conftest import ingest
from tests.unit.retriever.hashed_words import HashedWords

pytest.importorskip("pymilvus", reason="needs the extra milvus")
pytest.importorskip("milvus_lite", reason="needs the extra milvus")

from edge_rag.index.milvus import Milvus, MilvusIndexes

_NOBODY = "http://127.0.0.1:9"
Opener = Callable[..., OpenDirectory]


@pytest.fixture
def server(tmp_path: Path) -> str:
    return str(tmp_path / "milvus.db")


@pytest.fixture
def opened(tmp_path: Path, server: str) -> Iterator[Opener]:
    """Opens a data directory with a Milvus; whatever is open at the end of the test is closed."""
    directories: list[OpenDirectory] = []

    def start(uri: str | None = server, name: str = "data") -> OpenDirectory:
        milvus = None if uri is None else MilvusAddress(uri, timeout_s=30 if uri == server else 0.5)
        directory = OpenDirectory(tmp_path / name, HashedWords(), DirectoryOptions(milvus=milvus))
        directories.append(directory)
        return directory

    yield start
    for directory in directories:
        directory.close()


def fill(directory: OpenDirectory, numbers: range) -> None:
    for number in numbers:
        ingest(directory, f"{number}.txt", text(number))


def text(number: int) -> str:
    return f"Valve number{number} is shut by lever{number} at the wall."


def best(directory: OpenDirectory, number: int) -> str:
    (answer,) = directory.retriever.retrieve([RetrievalRequest(text(number), "default", 50)])
    if isinstance(answer, Exception):
        raise answer
    assert isinstance(answer, Retrieved)
    (first,) = [hit for hit in answer.hits if hit.dense_rank == 1]
    return first.passage.document


def home(directory: OpenDirectory) -> MilvusIndexes:
    milvus = directory.indexes.backends[BackendKind.MILVUS]
    assert isinstance(milvus, MilvusIndexes)
    return milvus


def kind(directory: OpenDirectory) -> tuple[IndexKind, int | None, bool]:
    (index,) = directory.library.indexes()
    return require_recognized(index.kind), index.vectors, index.pending


def names(server: str) -> list[str]:
    milvus = Milvus(server, "", 30)
    with milvus.client() as client:
        found: list[str] = client.list_collections()
    milvus.close()
    return sorted(found)


def test_a_collection_moves_to_milvus_and_back_and_finds_the_same(opened: Opener, server: str) -> None:
    directory = opened()
    fill(directory, range(12))

    directory.library.move_index("default", BackendKind.MILVUS)

    assert kind(directory) == (IndexKind.MILVUS, 12, False)
    assert [best(directory, number) for number in range(12)] == [f"{number}.txt" for number in range(12)]

    directory.library.move_index("default", BackendKind.FAISS)

    assert kind(directory) == (IndexKind.EXACT, 12, False)
    assert [best(directory, number) for number in range(12)] == [f"{number}.txt" for number in range(12)]
    assert [name for name in names(server) if not name.endswith("_states")] == []


def test_changes_are_followed_and_the_choice_outlives_a_restart(opened: Opener) -> None:
    directory = opened()
    fill(directory, range(6))
    directory.library.move_index("default", BackendKind.MILVUS)
    directory.library.delete("default", "3.txt")
    fill(directory, range(6, 8))
    ingest(directory, "2.txt", "Something else altogether.")
    directory.close()

    directory = opened()

    assert kind(directory) == (IndexKind.MILVUS, 7, False)
    assert [best(directory, number) for number in (0, 6, 7)] == ["0.txt", "6.txt", "7.txt"]
    assert best(directory, 3) != "3.txt"


def test_what_was_missed_is_made_up_for_before_anything_is_found(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = opened()
    fill(directory, range(6))
    directory.library.move_index("default", BackendKind.MILVUS)
    milvus = home(directory)

    def fail(*_: object) -> None:
        raise StorageError("the network is down")

    with monkeypatch.context() as down:
        down.setattr("edge_rag.index.milvus.MilvusIndex.change", fail)
        down.setattr("edge_rag.index.milvus.MilvusIndex.digests", fail)
        directory.library.delete("default", "1.txt")
        fill(directory, range(6, 8))
        milvus.updates.wait()
        with pytest.raises(StorageError, match="the network is down"):
            best(directory, 1)
        milvus.updates.wait()
    with pytest.raises(StorageError):
        best(directory, 1)  # asking has it tried again
    milvus.updates.wait()

    assert kind(directory) == (IndexKind.MILVUS, 7, False)
    assert best(directory, 1) != "1.txt"
    assert [best(directory, number) for number in (0, 6, 7)] == ["0.txt", "6.txt", "7.txt"]


@pytest.mark.parametrize("harm", ["rows removed", "rows added", "vectors changed", "collection gone"])
def test_rows_that_are_not_what_the_database_has_are_put_right(opened: Opener, server: str, harm: str) -> None:
    directory = opened()
    fill(directory, range(6))
    directory.library.move_index("default", BackendKind.MILVUS)
    directory.close()
    (rows, states) = names(server)
    milvus = Milvus(server, "", 30)
    other = {"chunk": 2, "digest": 0, "vector": [1.0] + 31 * [0.0]}
    with milvus.client() as client:
        client.delete(states, ids=[1])  # as it is when a process ends between SQLite's commit and this
        match harm:
            case "rows removed":
                client.delete(rows, ids=[1, 2])
            case "rows added":
                client.upsert(rows, data=[{**other, "chunk": 77}])
            case "vectors changed":
                client.upsert(rows, data=[other])
            case _:
                client.drop_collection(rows)
    milvus.close()

    directory = opened()
    home(directory).updates.wait()

    assert kind(directory) == (IndexKind.MILVUS, 6, False)
    assert [best(directory, number) for number in range(6)] == [f"{number}.txt" for number in range(6)]


def test_a_milvus_that_is_not_there_is_named_and_loses_nothing(opened: Opener) -> None:
    directory = opened()
    fill(directory, range(4))
    directory.library.move_index("default", BackendKind.MILVUS)
    directory.close()

    directory = opened(_NOBODY)
    with pytest.raises(StorageError, match=r"127\.0\.0\.1:9"):
        best(directory, 1)
    fill(directory, range(4, 5))
    directory.close()

    directory = opened()
    home(directory).updates.wait()
    assert kind(directory) == (IndexKind.MILVUS, 5, False)
    assert best(directory, 4) == "4.txt"


def test_a_move_to_a_milvus_that_is_not_there_leaves_the_collection_where_it_is(opened: Opener) -> None:
    directory = opened(_NOBODY)
    fill(directory, range(4))

    with pytest.raises(StorageError, match=r"127\.0\.0\.1:9"):
        directory.library.move_index("default", BackendKind.MILVUS)

    assert kind(directory) == (IndexKind.EXACT, 4, False)
    assert best(directory, 2) == "2.txt"


def test_without_a_milvus_in_the_settings_a_collection_there_can_still_be_brought_back(opened: Opener) -> None:
    directory = opened()
    fill(directory, range(4))
    directory.library.move_index("default", BackendKind.MILVUS)
    directory.close()

    directory = opened(None)
    with pytest.raises(StorageError, match=r"retriever\.milvus\.uri"):
        best(directory, 1)
    directory.library.move_index("default", BackendKind.FAISS)

    assert best(directory, 1) == "1.txt"
    with pytest.raises(ConfigurationError, match=r"retriever\.milvus\.uri"):
        directory.library.move_index("default", BackendKind.MILVUS)


def test_a_dropped_collection_leaves_nothing_in_milvus(opened: Opener, server: str) -> None:
    directory = opened()
    fill(directory, range(2))
    directory.library.move_index("default", BackendKind.MILVUS)
    for number in range(2):
        directory.library.delete("default", f"{number}.txt")
    directory.close()

    assert [name for name in names(server) if not name.endswith("_states")] == []


def test_boxes_that_share_a_milvus_do_not_meet(opened: Opener, server: str) -> None:
    one, other = opened(name="one"), opened(name="other")
    fill(one, range(3))
    fill(other, range(3, 6))
    one.library.move_index("default", BackendKind.MILVUS)
    other.library.move_index("default", BackendKind.MILVUS)

    assert [best(one, number) for number in range(3)] == ["0.txt", "1.txt", "2.txt"]
    assert [best(other, number) for number in range(3, 6)] == ["3.txt", "4.txt", "5.txt"]
    assert len(names(server)) == 4


def test_boxes_restored_from_one_backup_do_not_meet_in_milvus(opened: Opener, server: str, tmp_path: Path) -> None:
    one = opened(name="one")
    fill(one, range(3))
    one.library.move_index("default", BackendKind.MILVUS)
    saved = tmp_path / "saved.edge-rag"
    saved.write_bytes(b"".join(one.backups.make({})))
    restore(saved, tmp_path / "other", replace=False)

    other = opened(name="other")
    home(other).updates.wait()
    other.library.delete("default", "0.txt")
    fill(other, range(3, 5))

    assert [best(one, number) for number in range(3)] == ["0.txt", "1.txt", "2.txt"]
    assert [best(other, number) for number in range(1, 5)] == ["1.txt", "2.txt", "3.txt", "4.txt"]
    assert len(names(server)) == 4
