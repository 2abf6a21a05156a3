"""A data directory survives whatever happens to what is only a cache, and is held by one daemon at a time."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import apsw
import numpy as np
import pytest
from numpy.typing import NDArray

from edge_rag.bootstrap.open_directory import DirectoryOptions, LockedLibrary, OpenDirectory
from edge_rag.core.passage import RetrievalRequest, Retrieved
from edge_rag.errors import ConfigurationError, DataDirectoryInUse, StorageCorrupt, StorageError
from tests.unit.conftest import Opener, ingest
from tests.unit.retriever.hashed_words import HashedWords


def dense_documents(directory: OpenDirectory, question: str, collection: str = "default") -> list[str]:
    (found,) = directory.retriever.retrieve([RetrievalRequest(question, collection, 100)])
    assert isinstance(found, Retrieved)
    hits = [hit for hit in found.hits if hit.dense_rank is not None]
    return [hit.passage.document for hit in sorted(hits, key=lambda hit: hit.dense_rank or 0)]


def filled(open_directory: Opener) -> None:
    directory = open_directory()
    ingest(directory, "a.txt", "The bearing of the pump")
    ingest(directory, "b.txt", "The colour of the paint")
    directory.close()


def test_a_saved_index_is_used_again(open_directory: Opener, tmp_path: Path) -> None:
    filled(open_directory)
    files = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "data" / "vectors").iterdir()}
    assert sorted(files) == ["1.faiss", "1.json"]

    directory = open_directory()
    assert dense_documents(directory, "pump bearing")[0] == "a.txt"
    directory.close()

    assert {file.name: file.stat().st_mtime_ns for file in (tmp_path / "data" / "vectors").iterdir()} == files


@pytest.mark.parametrize("position", [0, 3, 60, -1])
def test_an_index_with_a_flipped_byte_is_rebuilt(open_directory: Opener, tmp_path: Path, position: int) -> None:
    filled(open_directory)
    file = tmp_path / "data" / "vectors" / "1.faiss"
    content = bytearray(file.read_bytes())
    content[position] ^= 0x40
    file.write_bytes(content)

    directory = open_directory()
    assert dense_documents(directory, "pump bearing") == ["a.txt", "b.txt"]
    directory.close()

    assert file.read_bytes() != bytes(content)


def test_missing_and_foreign_index_files_do_no_harm(open_directory: Opener, tmp_path: Path) -> None:
    filled(open_directory)
    vectors = tmp_path / "data" / "vectors"
    (vectors / "1.faiss").rename(vectors / "77.faiss")

    directory = open_directory()

    assert dense_documents(directory, "pump bearing") == ["a.txt", "b.txt"]
    assert not (vectors / "77.faiss").exists()


def test_an_index_that_is_behind_the_database_is_rebuilt(open_directory: Opener, tmp_path: Path) -> None:
    filled(open_directory)
    vectors = tmp_path / "data" / "vectors"
    stale = {file.name: file.read_bytes() for file in vectors.iterdir()}
    directory = open_directory()
    ingest(directory, "a.txt", "Something else altogether")
    directory.close()
    for name, content in stale.items():
        (vectors / name).write_bytes(content)

    assert dense_documents(open_directory(), "something altogether")[0] == "a.txt"


def test_another_embedder_has_every_text_embedded_again_once(open_directory: Opener) -> None:
    filled(open_directory)
    newer = HashedWords("newer", dimension=16)
    directory = open_directory(newer)
    assert newer.texts == 2
    assert dense_documents(directory, "pump bearing")[0] == "a.txt"
    directory.close()

    again = HashedWords("newer", dimension=16)
    directory = open_directory(again)
    assert again.texts == 0
    assert dense_documents(directory, "pump bearing")[0] == "a.txt"


def test_a_second_daemon_is_refused_with_the_process_id_of_the_first(open_directory: Opener, tmp_path: Path) -> None:
    open_directory()

    with pytest.raises(DataDirectoryInUse) as refused:
        open_directory()

    assert str(tmp_path / "data") in str(refused.value)
    assert str(os.getpid()) in str(refused.value)


def test_a_second_process_is_refused_and_a_closed_directory_is_free(open_directory: Opener, tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from edge_rag.storage.data_directory import DataDirectory\n"
        "DataDirectory(Path(sys.argv[1]))"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", script, str(tmp_path / "data")]
    directory = open_directory()

    refused = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert refused.returncode != 0
    assert "DataDirectoryInUse" in refused.stderr

    directory.close()
    assert subprocess.run(command, env=environment, capture_output=True).returncode == 0


def test_a_failed_opening_lets_the_directory_go(open_directory: Opener, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "documents.sqlite3").write_bytes(b"this is no database, and long enough to be seen" * 100)

    for _ in range(2):
        with pytest.raises(StorageCorrupt, match="damaged"):
            open_directory()


def test_a_database_of_a_newer_version_is_refused(open_directory: Opener, tmp_path: Path) -> None:
    open_directory().close()
    connection = apsw.Connection(str(tmp_path / "data" / "documents.sqlite3"))
    connection.execute("PRAGMA user_version = 99")
    connection.close()

    with pytest.raises(StorageError, match="newer edge-rag"):
        open_directory()


def test_a_path_that_cannot_be_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(StorageError, match="cannot be used"):
        OpenDirectory(tmp_path / "file", HashedWords())


def test_chunks_too_small_to_embed_are_refused_as_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="reads 256 tokens"):
        OpenDirectory(tmp_path, HashedWords(), DirectoryOptions(context_tokens=255))


def test_a_library_that_was_opened_before_the_models_is_released_when_the_opening_fails(tmp_path: Path) -> None:
    library = LockedLibrary(tmp_path)
    with pytest.raises(DataDirectoryInUse):
        OpenDirectory(tmp_path, HashedWords())

    with pytest.raises(ConfigurationError, match="reads 256 tokens"):
        OpenDirectory(library, HashedWords(), DirectoryOptions(context_tokens=255))

    OpenDirectory(LockedLibrary(tmp_path), HashedWords()).close()


def test_closing_twice_is_harmless(open_directory: Opener) -> None:
    directory = open_directory()
    directory.close()
    directory.close()


class TwoWays(HashedWords):
    """Reads questions in another way than passages: a question in capitals has the passage's vector."""

    def embed_questions(self, questions: Sequence[str]) -> NDArray[np.float32]:
        return self.embed([question.replace("WHAT", "colour paint") for question in questions])


def test_questions_are_embedded_as_questions_and_passages_as_passages(open_directory: Opener) -> None:
    directory = open_directory(TwoWays())
    ingest(directory, "a.txt", "The bearing of the pump")
    ingest(directory, "b.txt", "The colour of the paint")
    ingest(directory, "c.txt", "WHAT")
    assert dense_documents(directory, "WHAT")[0] == "b.txt"
