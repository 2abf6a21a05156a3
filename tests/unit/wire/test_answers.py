"""No response grows without bound with what is stored."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.answer import PassagesFound
from edge_rag.core.documents.collection import CollectionInfo, CollectionSettings
from edge_rag.core.documents.document import DocumentInfo
from edge_rag.core.documents.jobs import Job, JobId, JobState
from edge_rag.core.ids import ChunkId, DocumentId
from edge_rag.core.passage import Passage, RankedPassage
from edge_rag.core.query import AnswerMode
from edge_rag.wire.answers import (
    MAX_RESPONSE_BYTES,
    document_to_message,
    event_to_message,
    fitting,
    search_to_message,
    size_of,
)
from edge_rag.wire.collections import collections_to_messages
from edge_rag.wire.jobs import job_to_message

_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_SIZES = st.lists(st.integers(0, 8000), max_size=100)


def passage(number: int, size: int) -> RankedPassage:
    metadata = {f"key{part}": "€" * (size // 2) for part in range(2)}
    stored = Passage(ChunkId(number), DocumentId(f"{number}"), "a.md", None, 0, 4, "text", (), metadata)
    return RankedPassage(stored, 1.0, ())


def document(number: int, size: int) -> DocumentInfo:
    metadata = {"key": "€" * size}
    return DocumentInfo(DocumentId(f"{number}"), "a", "a.md", "", "", "0" * 64, 0, 0, 0, None, _NOW, metadata)


@given(_SIZES)
def test_a_search_returns_as_many_of_the_best_hits_as_fit(sizes: list[int]) -> None:
    hits = [passage(number, 4 * size) for number, size in enumerate(sizes)]

    message = search_to_message(hits, (), ())

    assert message.ByteSize() <= MAX_RESPONSE_BYTES
    found = len(message.hits)
    assert [hit.document_id for hit in message.hits] == [f"{number}" for number in range(found)]
    if found < len(hits):
        (following,) = search_to_message(hits[found : found + 1], (), ()).hits
        assert sum(map(size_of, message.hits)) + size_of(following) > MAX_RESPONSE_BYTES


@given(_SIZES)
def test_an_answer_has_all_its_passages_and_drops_metadata(sizes: list[int]) -> None:
    found = tuple(passage(number, 4 * size) for number, size in enumerate(sizes))

    message = event_to_message(PassagesFound(found, 1.0, AnswerMode.QUOTE))

    assert len(message.passages.passages) == len(found)
    assert message.ByteSize() <= MAX_RESPONSE_BYTES + 100 * len(found)


@given(_SIZES)
def test_a_page_of_records_is_not_empty_and_fits(sizes: list[int]) -> None:
    records = [document_to_message(document(number, 4 * size)) for number, size in enumerate(sizes)]

    page = fitting(records, size_of)

    assert page == records[: len(page)]
    assert bool(page) == bool(records)
    assert len(page) == 1 or sum(map(size_of, page)) <= MAX_RESPONSE_BYTES
    assert page == records or sum(map(size_of, records[: len(page) + 1])) > MAX_RESPONSE_BYTES


@given(st.integers(0, 300), st.integers(0, 4096))
def test_a_list_of_collections_names_all_of_them(count: int, described: int) -> None:
    settings = CollectionSettings(description="€" * described)
    infos = [CollectionInfo(f"c{number}", settings, 1, 1, True, _NOW) for number in range(count)]

    messages = collections_to_messages(infos)

    assert [message.name for message in messages] == [info.name for info in infos]
    assert sum(map(size_of, messages)) <= MAX_RESPONSE_BYTES + 200 * count


@given(st.integers(0, 60), st.integers(0, 1000))
def test_a_list_of_jobs_of_many_collections_fits(count: int, collections: int) -> None:
    names = frozenset(f"{number:064}" for number in range(collections))
    job = Job(JobId("1"), JobState.FINISHED, _NOW, _NOW, names, {}, 0, 0)

    page = fitting([job_to_message(job)] * count, size_of)

    assert sum(map(size_of, page)) <= MAX_RESPONSE_BYTES
