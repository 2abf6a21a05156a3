"""After a change of the embedding model, chunks are embedded again while questions are answered."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from edge_rag.bootstrap.open_directory import DirectoryOptions, OpenDirectory
from edge_rag.core.passage import RetrievalRequest, Retrieved
from edge_rag.errors import InferenceFailed
from edge_rag.index.local import IndexLimits
from tests.unit.conftest import ingest
from tests.unit.retriever.hashed_words import HashedWords

LONG_S = 60.0
DOCUMENTS = 12


class Gated(HashedWords):
    """Embeds passages only when let through, one call for each permit."""

    def __init__(self, dimension: int = 16) -> None:
        super().__init__("newer", dimension)
        self.permits = threading.Semaphore(0)
        self.reached = threading.Semaphore(0)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.reached.release()
        assert self.permits.acquire(timeout=LONG_S)
        return super().embed(texts)

    def embed_questions(self, questions: Sequence[str]) -> NDArray[np.float32]:
        return HashedWords.embed(self, questions)

    def open_gate(self) -> None:
        self.permits.release(10_000)


def ranks(directory: OpenDirectory, question: str, collection: str = "default") -> dict[str, tuple[bool, bool]]:
    (found,) = directory.retriever.retrieve([RetrievalRequest(question, collection, 100)])
    assert isinstance(found, Retrieved)
    return {hit.passage.document: (hit.dense_rank is not None, hit.lexical_rank is not None) for hit in found.hits}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A data directory of the old model with two collections."""
    with closing(OpenDirectory(tmp_path / "data", HashedWords())) as directory:
        for number in range(DOCUMENTS):
            ingest(directory, f"{number}.txt", f"The pump number{number} is greased")
        ingest(directory, "other.txt", "The gate is locked", collection="site")
    return tmp_path / "data"


@pytest.fixture
def started(path: Path) -> Iterator[Callable[..., tuple[OpenDirectory, Gated]]]:
    opened: list[tuple[OpenDirectory, Gated]] = []

    def start(options: DirectoryOptions | None = None) -> tuple[OpenDirectory, Gated]:
        embedder = Gated()
        directory = OpenDirectory(path, embedder, options, renew_later=True)
        opened.append((directory, embedder))
        directory.renewal.start(lambda worked_s: None)
        return directory, embedder

    yield start
    for directory, embedder in opened:
        embedder.open_gate()
        directory.close()


def test_questions_are_answered_meanwhile_by_words_and_afterwards_by_vectors_too(
    started: Callable[..., tuple[OpenDirectory, Gated]],
) -> None:
    directory, embedder = started()
    assert embedder.reached.acquire(timeout=LONG_S)
    assert ranks(directory, "Is the pump greased?") == {f"{n}.txt": (False, True) for n in range(DOCUMENTS)}
    assert {index.collection: index.pending for index in directory.library.indexes()} == {"default": True, "site": True}
    assert sum(index.vectors or 0 for index in directory.library.indexes()) == 0

    embedder.open_gate()
    directory.renewal.wait()

    assert ranks(directory, "Is the pump greased?") == {f"{n}.txt": (True, True) for n in range(DOCUMENTS)}
    assert ranks(directory, "Is the gate locked?", "site") == {"other.txt": (True, True)}
    assert not any(index.pending for index in directory.library.indexes())


def test_what_is_removed_or_replaced_meanwhile_does_not_come_back(
    started: Callable[..., tuple[OpenDirectory, Gated]],
) -> None:
    directory, embedder = started()
    assert embedder.reached.acquire(timeout=LONG_S)
    directory.library.delete("default", "3.txt")
    directory.library.delete_collection("site")
    waiting = threading.Thread(target=ingest, args=(directory, "4.txt", "The pump of the new text"))
    waiting.start()
    embedder.open_gate()
    waiting.join(LONG_S)
    directory.renewal.wait()

    found = ranks(directory, "Is the pump greased?")
    assert found.keys() == {f"{n}.txt" for n in range(DOCUMENTS) if n != 3}
    assert all(dense for dense, _ in found.values())
    assert [(index.collection, index.vectors) for index in directory.library.indexes()] == [("default", DOCUMENTS - 1)]


def test_a_stop_ends_it_and_the_next_start_goes_on(path: Path) -> None:
    embedder = Gated()
    with closing(OpenDirectory(path, embedder, renew_later=True)) as directory:
        directory.renewal.start(lambda worked_s: None)
        assert embedder.reached.acquire(timeout=LONG_S)
        closer = threading.Thread(target=directory.renewal.close)
        closer.start()
        embedder.permits.release()  # the texts at hand
        closer.join(LONG_S)
        assert not closer.is_alive()
        assert not embedder.reached.acquire(blocking=False)

    again = HashedWords("newer", 16)
    with closing(OpenDirectory(path, again)) as directory:
        assert again.texts == DOCUMENTS + 1
        assert all(dense for dense, _ in ranks(directory, "Is the pump greased?").values())
    with closing(OpenDirectory(path, again)):
        assert again.texts == DOCUMENTS + 2  # only the question


def test_a_chunk_that_has_no_vector_yet_is_listed_as_that(path: Path) -> None:
    with closing(OpenDirectory(path, HashedWords("newer", 16), renew_later=True)) as directory:

        def is_indexed() -> bool:
            (chunk,) = directory.library.chunks("default", "3.txt", None, 10, 1 << 20).chunks
            return chunk.indexed

        assert not is_indexed()
        directory.renewal.start(lambda worked_s: None)
        directory.renewal.wait()
        assert is_indexed()


def test_staying_with_the_old_model_embeds_nothing(path: Path) -> None:
    old = HashedWords()
    with closing(OpenDirectory(path, old, renew_later=True)) as directory:
        directory.renewal.start(lambda worked_s: None)
        directory.renewal.wait()
        assert old.texts == 0
        assert all(dense for dense, _ in ranks(directory, "Is the pump greased?").values())


def test_a_model_that_fails_leaves_the_words_and_is_tried_again(path: Path) -> None:
    class Failing(HashedWords):
        def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            raise InferenceFailed("no memory")

        def embed_questions(self, questions: Sequence[str]) -> NDArray[np.float32]:
            return HashedWords.embed(self, questions)

    with closing(OpenDirectory(path, Failing("newer"), renew_later=True)) as directory:
        directory.renewal.start(lambda worked_s: None)
        directory.renewal.wait()
        assert all(lexical and not dense for dense, lexical in ranks(directory, "Is the pump greased?").values())
        assert all(index.pending for index in directory.library.indexes())
    with closing(OpenDirectory(path, HashedWords("newer"))) as directory:
        assert all(dense for dense, _ in ranks(directory, "Is the pump greased?").values())


def test_a_large_collection_gets_a_segment_of_the_new_vectors(
    path: Path, started: Callable[..., tuple[OpenDirectory, Gated]]
) -> None:
    few = DirectoryOptions(indexes=IndexLimits(exact_vectors=5))
    with closing(OpenDirectory(path, HashedWords(), few)):
        pass
    directory, embedder = started(few)
    embedder.open_gate()
    directory.renewal.wait()
    assert ranks(directory, "Is the pump greased?") == {f"{n}.txt": (True, True) for n in range(DOCUMENTS)}
    directory.close()
    with closing(OpenDirectory(path, HashedWords("newer", 16), few)) as directory:
        (index,) = [index for index in directory.library.indexes() if index.collection == "default"]
        assert index.vectors == DOCUMENTS
        assert all(dense for dense, _ in ranks(directory, "Is the pump greased?").values())
