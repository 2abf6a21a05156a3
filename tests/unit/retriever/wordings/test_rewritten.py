"""A question that a language model has rewritten is one more wording: whatever it wrote, nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_rag.core.documents.document import Upload
from edge_rag.core.passage import RetrievalRequest, Retrieved
from edge_rag.core.query import Turn
from edge_rag.retriever.open_directory import OpenDirectory, open_data_directory
from tests.unit.retriever.hashed_words import HashedWords

PARTS = ("bearing", "seal", "valve", "motor", "filter", "coupling", "gasket", "impeller")
WORK = ("greased weekly", "changed yearly", "cleaned daily", "inspected monthly")
TURNS = (Turn("How often is the bearing greased?", "Weekly."),)
QUESTION = "and when is it cleaned?"
ARTICLES = {f"{part}-{work.split()[0]}.txt": f"The {part} is {work}." for part in PARTS for work in WORK}

texts = st.one_of(
    st.text(min_size=1, max_size=60).filter(str.strip),
    st.lists(st.sampled_from((*PARTS, *" ".join(WORK).split(), "nothing")), min_size=1, max_size=8).map(" ".join),
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenDirectory]:
    opened = open_data_directory(tmp_path_factory.mktemp("rewritten"), HashedWords())
    for name, text in ARTICLES.items():
        opened.library.ingest(Upload.of_bytes("site", name, "text/plain", text.encode()))
    yield opened
    opened.close()


def found(directory: OpenDirectory, turns: tuple[Turn, ...] = (), rewritten: str | None = None) -> Retrieved:
    request = RetrievalRequest(QUESTION, "site", len(ARTICLES), turns=turns, rewritten=rewritten)
    (retrieved,) = directory.retriever.retrieve([request])
    assert isinstance(retrieved, Retrieved), retrieved
    return retrieved


@settings(deadline=None, max_examples=40)
@given(rewritten=texts)
def test_whatever_a_model_wrote_nothing_that_the_question_as_asked_finds_is_lost(
    directory: OpenDirectory, rewritten: str
) -> None:
    alone = [hit.passage.document for hit in found(directory).hits]
    retrieved = found(directory, TURNS, rewritten)
    places = {hit.passage.document: place for place, hit in enumerate(retrieved.hits, start=1)}

    assert retrieved.wordings is not None
    for rank, document in enumerate(alone, start=1):
        assert places[document] <= rank * len(retrieved.wordings.distinct)


def test_the_wording_of_a_model_is_the_main_one_and_that_of_the_rules_stays_beside_it(directory: OpenDirectory) -> None:
    by_rules = found(directory, TURNS).wordings
    wordings = found(directory, TURNS, "When is the bearing cleaned?").wordings

    assert by_rules is not None
    assert by_rules.standalone is not None
    assert wordings is not None
    assert wordings.main == wordings.standalone == "When is the bearing cleaned?"
    assert wordings.distinct == (QUESTION, by_rules.standalone, "When is the bearing cleaned?")
