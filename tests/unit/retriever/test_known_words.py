"""BM25 takes part in the fusion where a passage has the words of the question."""

import pytest

from edge_rag.bootstrap.open_directory import OpenDirectory
from edge_rag.core.documents.collection import FusionWeights
from edge_rag.core.passage import RetrievalRequest, Retrieved
from tests.unit.conftest import Opener, ingest

_DOCUMENTS = {
    "de.txt": "Die Lager der Pumpe P-101 werden alle 1.500,5 Stunden geschmiert.",
    "zh.txt": "油圧泵的轴承每500小时润滑一次。",
    "th.txt": "ตลับลูกปืนของปั๊มน้ำต้องหล่อลื่นทุกเดือน",
    "hi.txt": "पंप के बेयरिंग को हर महीने चिकनाई दी जाती है।",
    "ar.txt": "يجب تشحيم محامل المضخة كل شهر.",
    "en.txt": "The relief valve of the boiler opens at 1,234.5 bar and is tested on Mondays.",
    "paint.txt": "The engine room is painted grey, its floor green.",
}


@pytest.fixture
def directory(open_directory: Opener) -> OpenDirectory:
    opened = open_directory()
    for name, text in _DOCUMENTS.items():
        ingest(opened, name, text)
    return opened


def by_words(directory: OpenDirectory, question: str) -> list[str]:
    (found,) = directory.retriever.retrieve([RetrievalRequest(question, "default", 10)])
    assert isinstance(found, Retrieved)
    assert len(found.hits) == len(_DOCUMENTS)
    hits = [hit for hit in found.hits if hit.lexical_rank is not None]
    return [hit.passage.document for hit in sorted(hits, key=lambda hit: hit.lexical_rank or 0)]


@pytest.mark.parametrize(
    ("question", "document"),
    [
        ("Wann werden die Lager geschmiert?", "de.txt"),
        ("泵的轴承多久润滑？", "zh.txt"),
        ("ปั๊มน้ำต้องหล่อลื่นเมื่อไร", "th.txt"),
        ("बेयरिंग को चिकनाई कब दी जाती है?", "hi.txt"),
        ("متى يتم تشحيم المضخات؟", "ar.txt"),
        ("Ventil 1.234,5 bar", "en.txt"),
        ("1500.5 Stunden", "de.txt"),
        ("At what pressure do relief valves open?", "en.txt"),
    ],
)
def test_a_question_in_the_words_of_a_passage_finds_it_by_them(
    directory: OpenDirectory, question: str, document: str
) -> None:
    assert by_words(directory, question)[0] == document


def test_words_by_chance_do_not_take_places_from_the_vector_search(directory: OpenDirectory) -> None:
    question = "Combien de fois faut-il graisser chaque roulement principal de la pompe 500 die engine?"

    assert by_words(directory, question) == []


def test_a_collection_that_is_searched_by_words_alone_takes_any_word(directory: OpenDirectory) -> None:
    directory.collections.update("default", {"fusion": FusionWeights(dense=0.0)})
    (found,) = directory.retriever.retrieve(
        [RetrievalRequest("Combien de fois faut-il graisser le roulement principal de la pompe engine?", "default", 10)]
    )

    assert isinstance(found, Retrieved)
    assert [hit.passage.document for hit in found.hits] == ["paint.txt"]
