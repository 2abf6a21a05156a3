"""What the retriever promises the pipeline, over real text with the real encoder."""

from collections.abc import Iterator
from math import log
from pathlib import Path

import pytest

from edge_rag.bootstrap.open_directory import OpenDirectory
from edge_rag.core.documents.document import Upload
from edge_rag.core.passage import RetrievalRequest, Retrieved
from edge_rag.core.query import Turn, TurnSource
from edge_rag.errors import CollectionNotFound
from edge_rag.retriever.hybrid import HybridRetriever
from edge_rag.runtime.encoder.text_encoder import TextEncoder

_MODEL = Path(__file__).parents[2] / "models" / "minilm-l6"
_MANUAL = """# Pump P-101

## Bearings

The bearings must be greased every 2,000 hours of operation.

## Seal

The mechanical seal is checked for leaks each week.

## Electrical

The motor runs at 400 V and draws 12 A under full load.
"""
_SAFETY = """# Safety

Wear gloves and goggles when you handle sodium hypochlorite.

In case of fire use the carbon dioxide extinguisher beside the door.
"""


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenDirectory]:
    directory = OpenDirectory(tmp_path_factory.mktemp("data"), TextEncoder.open(_MODEL))
    for collection, name, text in (
        ("site", "manual.md", _MANUAL),
        ("site", "safety.md", _SAFETY),
        ("other", "note.txt", "The bearings of the gate are painted blue."),
    ):
        directory.library.ingest(Upload.of_bytes(collection, name, "", text.encode()))
    yield directory
    directory.close()


@pytest.fixture(scope="module")
def retriever(opened: OpenDirectory) -> HybridRetriever:
    return opened.retriever


def ask(retriever: HybridRetriever, question: str, collection: str = "site", limit: int = 5) -> Retrieved:
    (answer,) = retriever.retrieve([RetrievalRequest(question, collection, limit)])
    assert isinstance(answer, Retrieved)
    return answer


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("How often must the bearings be greased?", "2,000 hours"),
        ("What voltage does the engine need?", "400 V"),
        ("Which protective equipment do I need for bleach?", "gloves and goggles"),
        ("P-101 leak inspection interval", "each week"),
        ("bearings", "2,000 hours"),
    ],
)
def test_the_passage_that_answers_comes_first(retriever: HybridRetriever, question: str, expected: str) -> None:
    assert expected in ask(retriever, question).hits[0].passage.text


def test_a_passage_is_an_exact_range_of_the_stored_text_with_its_headings(
    opened: OpenDirectory, retriever: HybridRetriever
) -> None:
    best = ask(retriever, "How often must the bearings be greased?").hits[0]
    passage = best.passage

    info, text = opened.documents.get("site", passage.document_id)
    assert passage.document == info.name == "manual.md"
    assert passage.text == text[passage.start : passage.end]
    assert passage.context == ("Pump P-101", "Bearings")
    assert (passage.page, best.dense_rank, best.lexical_rank) == (None, 1, 1)


def test_an_answer_does_not_depend_on_its_neighbours_in_the_batch(retriever: HybridRetriever) -> None:
    requests = [
        RetrievalRequest("How often must the bearings be greased?", "site", 5),
        RetrievalRequest("fire", "site", 2),
        RetrievalRequest("What colour are the gate's bearings?", "other", 3),
        RetrievalRequest("What does one do in case of a fire in the pump room, beside calling for help?", "site", 9),
    ]

    assert retriever.retrieve(requests) == [retriever.retrieve([request])[0] for request in requests]


GREASING = Turn(
    "How often must the bearings be greased?",
    "The bearings must be greased every 2,000 hours of operation.",
    (TurnSource("manual.md", ("Pump P-101", "Bearings"), "The bearings must be greased every 2,000 hours."),),
)


def follow_up(retriever: HybridRetriever, question: str, *turns: Turn, explain: bool = False) -> Retrieved:
    (answer,) = retriever.retrieve([RetrievalRequest(question, "site", 5, explain=explain, turns=turns)])
    assert isinstance(answer, Retrieved)
    return answer


def test_what_a_question_leaves_to_earlier_turns_is_searched_for_as_well(retriever: HybridRetriever) -> None:
    alone, found = ask(retriever, "What happens to them?"), follow_up(retriever, "What happens to them?", GREASING)

    assert found.wordings is not None
    assert found.wordings.standalone is not None
    assert "bearings" in found.wordings.main
    assert "2,000 hours" in found.hits[0].passage.text
    assert "bearings" in found.excerpt
    assert "bearings" in found.term_weights
    assert [other.text for other in found.others] == ["What happens to them?"]
    assert alone.wordings is not None
    assert alone.wordings.distinct == ("What happens to them?",)


def test_no_hit_of_the_question_as_asked_is_lost_by_another_wording(retriever: HybridRetriever) -> None:
    question = "Does fire damage it?"
    alone, found = ask(retriever, question), follow_up(retriever, question, GREASING)

    assert found.others
    places = {hit.passage.chunk_id: place for place, hit in enumerate(found.hits, start=1)}
    for rank, hit in enumerate(alone.hits, start=1):
        assert places[hit.passage.chunk_id] <= 2 * rank


def test_a_question_with_two_wordings_is_explained_by_the_better_ranks_and_scores(retriever: HybridRetriever) -> None:
    found = follow_up(retriever, "What happens to them?", GREASING, explain=True)

    best = found.hits[0]
    assert (best.dense_rank, best.lexical_rank) == (1, 1)
    assert best.dense_score is not None
    assert best.lexical_score is not None
    assert best.dense_score == max(hit.dense_score for hit in found.hits if hit.dense_score is not None)
    assert best.fused_score <= found.best_score


@pytest.mark.parametrize("question", ["How often must the bearings be greased?", "seal leaks"])
def test_turns_change_nothing_of_a_question_that_leaves_them_nothing(retriever: HybridRetriever, question: str) -> None:
    asked = RetrievalRequest(question, "site", 5, explain=True)
    (alone,) = retriever.retrieve([asked])
    found = follow_up(retriever, question, Turn("What does one do in case of fire?"), explain=True)

    assert found == alone
    assert found.others == ()
    best = found.hits[0]
    assert best.fused_score == sum(1 / (20 + rank) for rank in (best.dense_rank, best.lexical_rank) if rank)


def test_an_unknown_collection_fails_alone(retriever: HybridRetriever) -> None:
    first, second, third = retriever.retrieve(
        [
            RetrievalRequest("bearings", "site", 1),
            RetrievalRequest("bearings", "nowhere", 1),
            RetrievalRequest("fire", "site", 1),
        ]
    )

    assert isinstance(first, Retrieved)
    assert isinstance(second, CollectionNotFound)
    assert isinstance(third, Retrieved)
    assert (len(first.hits), len(third.hits)) == (1, 1)


def test_an_empty_batch_has_an_empty_answer(retriever: HybridRetriever) -> None:
    assert retriever.retrieve([]) == []


@pytest.mark.parametrize(
    "question",
    [
        '"',
        "bearings OR (",
        "text:bearings AND NOT *",
        "a\x00b",
        "?!",
        "the of and",
        "漢字",
        "x" * 100_000,
        "w " * 50_000,
    ],
)
def test_no_question_breaks_the_search(retriever: HybridRetriever, question: str) -> None:
    assert ask(retriever, question).hits


def test_term_weights_are_the_inverse_document_frequency_in_the_collection(retriever: HybridRetriever) -> None:
    weights = ask(retriever, "Are the Bearings of the xylophone checked each week?").term_weights

    chunks = 4
    assert weights == {
        "bearings": pytest.approx(log((chunks + 1) / 1.5)),
        "xylophone": pytest.approx(log((chunks + 1) / 0.5)),
        "checked": pytest.approx(log((chunks + 1) / 1.5)),
        "week": pytest.approx(log((chunks + 1) / 1.5)),
    }
    assert max(weights, key=lambda term: weights[term]) == "xylophone"
