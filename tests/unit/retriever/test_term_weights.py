"""Which words of a question tell, by the collection's own frequencies."""

from collections.abc import Iterator
from math import log
from pathlib import Path

import pytest

from edge_rag.bootstrap.open_directory import OpenDirectory
from edge_rag.core.documents.document import Upload
from edge_rag.core.passage import RetrievalRequest, Retrieved
from tests.unit.retriever.hashed_words import HashedWords

TEXTS = {
    "de": ("Die Pumpe ist rot und laut.", "Das Ventil ist blau.", "Die Dichtung ist neu.", "Ein Motor läuft."),
    "el": ("Η αντλία είναι κόκκινη.", "Η βαλβίδα είναι μπλε.", "Το φίλτρο είναι νέο.", "Ένας κινητήρας λειτουργεί."),
    "zh": ("泵是红色的。", "阀门是蓝色的。", "滤芯是新色的。", "电机。"),
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenDirectory]:
    opened = OpenDirectory(Path(tmp_path_factory.mktemp("data")), HashedWords())
    for collection, texts in TEXTS.items():
        for number, text in enumerate(texts):
            opened.library.ingest(Upload.of_bytes(collection, f"{number}.txt", "text/plain", text.encode()))
    yield opened
    opened.close()


def weights(directory: OpenDirectory, collection: str, question: str) -> dict[str, float]:
    (found,) = directory.retriever.retrieve([RetrievalRequest(question, collection, 5)])
    assert isinstance(found, Retrieved)
    return dict(found.term_weights)


@pytest.mark.parametrize(
    ("collection", "question", "telling"),
    [
        ("de", "Ist die Pumpe laut?", {"die": 2, "pumpe": 1, "laut": 1}),
        ("de", "Ist ist wann?", {"wann": 0}),
        ("de", "Ist?", {"ist": 3}),
        ("el", "Είναι η αντλία νέα;", {"η": 2, "αντλία": 1, "νέα": 1}),
        ("zh", "色的泵", {"的泵": 0}),
    ],
)
def test_words_of_more_than_half_of_the_chunks_tell_nothing_unless_there_are_no_others(
    directory: OpenDirectory, collection: str, question: str, telling: dict[str, int]
) -> None:
    found = weights(directory, collection, question)

    assert found == {word: pytest.approx(log(5 / (chunks + 0.5))) for word, chunks in telling.items()}
