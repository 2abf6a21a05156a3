"""A retrieval under way when text is removed has an epoch that the removal ended, so no cache keeps what it found."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from edge_rag.bootstrap.open_directory import OpenDirectory
from edge_rag.core.passage import RetrievalRequest, Retrieved
from edge_rag.storage.documents import DocumentStore
from tests.unit.conftest import ingest
from tests.unit.retriever.hashed_words import HashedWords


class Interrupted(HashedWords):
    """An embedder during whose work something may happen."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], object] = lambda: None

    def embed_questions(self, questions: Sequence[str]) -> NDArray[np.float32]:
        self.meanwhile()
        return super().embed_questions(questions)


class Box:
    def __init__(self, folder: Path) -> None:
        self.ended: list[int] = []
        self.embedder = Interrupted()
        self.directory: OpenDirectory = OpenDirectory(
            folder, self.embedder, on_removed=lambda collection, epoch: self.ended.append(epoch)
        )
        for name in ("secret.txt", "other.txt"):
            ingest(self.directory, name, f"The bearing of {name}")

    def retrieve(self) -> Retrieved:
        (found,) = self.directory.retriever.retrieve([RetrievalRequest("bearing", "default", 10)])
        assert isinstance(found, Retrieved)
        return found

    def remove(self) -> None:
        self.directory.library.delete("default", "secret.txt")


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Box]:
    box = Box(tmp_path / "data")
    yield box
    box.directory.close()


def test_text_that_was_found_and_then_removed_has_an_ended_epoch(opened: Box) -> None:
    found = opened.retrieve()
    assert "secret.txt" in {hit.passage.document for hit in found.hits}
    opened.remove()
    assert found.epoch < opened.ended[-1]
    assert opened.retrieve().epoch >= opened.ended[-1]


def test_text_removed_while_the_question_is_embedded_is_not_found_or_has_an_ended_epoch(opened: Box) -> None:
    opened.embedder.meanwhile = opened.remove
    assert opened.retrieve().epoch < opened.ended[-1]


def test_text_removed_right_after_it_was_read_has_an_ended_epoch(opened: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """The removal comes between the reading of the text and the end of the retrieval."""
    read = DocumentStore.passages

    def read_then_remove(store: DocumentStore, chunks: Sequence[object]) -> object:
        passages = read(store, chunks)  # type: ignore[arg-type]
        if not opened.ended:
            opened.remove()
        return passages

    monkeypatch.setattr(DocumentStore, "passages", read_then_remove)
    found = opened.retrieve()
    assert "secret.txt" in {hit.passage.document for hit in found.hits}
    assert found.epoch < opened.ended[-1]
