"""What the document library promises, over real SQLite and FAISS."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from edge_rag.bootstrap.open_directory import OpenDirectory
from edge_rag.core.documents.document import IngestOutcome, IngestStatus, StoredChunk, Upload
from edge_rag.core.documents.filters import Comparator, Comparison, MetadataField
from edge_rag.core.passage import RetrievalRequest, Retrieved
from edge_rag.errors import CollectionNotFound, DocumentNotFound, InvalidRequest
from edge_rag.ingest.library import UNSCHEDULED, DocumentLibrary
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.storage.documents import DocumentStore

_MODEL = Path(__file__).parents[2] / "models" / "minilm-l6"


@pytest.fixture(scope="module")
def encoder() -> TextEncoder:
    return TextEncoder.open(_MODEL)


@pytest.fixture
def opened(encoder: TextEncoder, tmp_path: Path) -> Iterator[OpenDirectory]:
    directory = OpenDirectory(tmp_path, encoder)
    yield directory
    directory.close()


@pytest.fixture
def library(opened: OpenDirectory) -> DocumentLibrary:
    return opened.library


@pytest.fixture
def documents(opened: OpenDirectory) -> DocumentStore:
    return opened.documents


def put(library: DocumentLibrary, name: str, content: str | bytes, collection: str = "manuals") -> IngestOutcome:
    raw = content.encode() if isinstance(content, str) else content
    return library.ingest(Upload.of_bytes(collection, name, "", raw), UNSCHEDULED)


def found(opened: OpenDirectory, question: str, collection: str = "manuals") -> list[str]:
    (answer,) = opened.retriever.retrieve([RetrievalRequest(question, collection, 10)])
    assert isinstance(answer, Retrieved)
    return [hit.passage.text for hit in answer.hits]


def test_a_new_document_is_added_with_its_record(library: DocumentLibrary, documents: DocumentStore) -> None:
    content = b"# Pump manual\n\nGrease the bearings every 2,000 hours."

    outcome = put(library, "pump/manual.md", content)

    info = outcome.document
    assert (outcome.name, outcome.status, outcome.reason) == ("pump/manual.md", IngestStatus.ADDED, "")
    assert info is not None
    assert (info.collection, info.name, info.title) == ("manuals", "pump/manual.md", "Pump manual")
    assert (info.media_type, info.size_bytes, info.pages) == ("text/markdown", len(content), None)
    assert info.sha256 == hashlib.sha256(content).hexdigest()
    assert (info.characters, info.chunks) == (len("Pump manual\n\nGrease the bearings every 2,000 hours."), 1)
    assert 0 <= (datetime.now(UTC) - info.ingested_at).total_seconds() < 60
    assert documents.get("manuals", info.document_id) == (info, "Pump manual\n\nGrease the bearings every 2,000 hours.")
    assert documents.get("manuals", "pump/manual.md")[0] == info


def test_other_bytes_under_the_same_name_replace_it_and_keep_its_id(opened: OpenDirectory) -> None:
    library = opened.library
    first = put(library, "a.txt", "The bearings are greased.")
    second = put(library, "a.txt", "The filter is cleaned.")

    assert second.status is IngestStatus.REPLACED
    assert first.document is not None
    assert second.document is not None
    assert second.document.document_id == first.document.document_id
    assert opened.documents.get("manuals", "a.txt")[1] == "The filter is cleaned."
    assert found(opened, "Are the bearings greased?") == ["The filter is cleaned."]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.pdf", b"%PDF-1.7 rubbish", "damaged"),
        ("a.txt", b"\x7fELF" + bytes(100), "not text"),
        ("a.md", b"", "empty"),
        ("a.docx", b"PK\x03\x04" + bytes(100), "damaged"),
    ],
)
def test_a_rejected_document_has_a_reason_and_changes_nothing(
    opened: OpenDirectory, name: str, content: bytes, reason: str
) -> None:
    library = opened.library
    put(library, "good.txt", "The bearings are greased.")
    before = opened.documents.list("manuals", None, 10)

    outcome = put(library, name, content)

    assert (outcome.status, outcome.document) == (IngestStatus.REJECTED, None)
    assert reason in outcome.reason
    assert opened.documents.list("manuals", None, 10) == before
    assert put(library, "next.txt", "Still taking opened.documents.").status is IngestStatus.ADDED


def test_a_rejected_first_document_makes_no_collection(library: DocumentLibrary, documents: DocumentStore) -> None:
    put(library, "a.md", b"")

    assert documents.document_counts() == {}


@pytest.mark.parametrize("collection", ["", "Upper", "a/b", "x" * 65])
def test_an_illegal_collection_name_is_refused_by_field(library: DocumentLibrary, collection: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^collection:"):
        put(library, "a.txt", "text", collection)


@pytest.mark.parametrize("name", ["", "x" * 1025, "a\nb", "a\x00"])
def test_an_illegal_document_name_is_refused_by_field(library: DocumentLibrary, name: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^name:"):
        put(library, name, "text")


def epoch_of(opened: OpenDirectory, collection: str = "manuals") -> int:
    (answer,) = opened.retriever.retrieve([RetrievalRequest("anything", collection, 1)])
    assert isinstance(answer, Retrieved)
    return answer.epoch


def test_a_collections_epoch_ends_when_text_of_it_goes_and_never_comes_again(
    encoder: TextEncoder, tmp_path: Path
) -> None:
    ended: list[tuple[str, int]] = []
    opened = OpenDirectory(tmp_path, encoder, on_removed=lambda name, epoch: ended.append((name, epoch)))
    library = opened.library
    put(library, "a.txt", "The bearings are greased.")
    put(library, "b.txt", "The filter is cleaned.")
    first = epoch_of(opened)
    put(library, "c.txt", "The pump is closed.")
    assert epoch_of(opened) == first
    assert ended == []

    put(library, "b.txt", "The filter is renewed.")
    second = epoch_of(opened)
    library.delete("manuals", "a.txt")
    third = epoch_of(opened)
    assert first < second < third
    assert ended == [("manuals", second), ("manuals", third)]
    opened.close()

    opened = OpenDirectory(tmp_path, encoder, on_removed=lambda name, epoch: ended.append((name, epoch)))
    assert epoch_of(opened) == third
    opened.library.delete_collection("manuals")
    name, after = ended[-1]
    assert (name, after) > ("manuals", third)
    put(opened.library, "a.txt", "The bearings are greased.")
    assert epoch_of(opened) > after
    opened.close()


def test_given_metadata_change_without_a_new_ingest_and_are_found_by_filters_at_once(opened: OpenDirectory) -> None:
    library = opened.library
    content = b"---\nauthor: Ada\n---\nThe bearings are greased."
    upload = Upload.of_bytes("manuals", "a.md", "", content, {"part": "pump", "year": 2020.0})
    before = library.ingest(upload, UNSCHEDULED).document
    assert before is not None

    def filtered(key: str, value: str) -> int:
        wanted = Comparison(MetadataField(key), Comparator.EQUAL, value)
        (answer,) = opened.retriever.retrieve([RetrievalRequest("bearings", "manuals", 10, wanted)])
        assert isinstance(answer, Retrieved)
        return len(answer.hits)

    assert (filtered("part", "pump"), filtered("author", "Ada")) == (1, 1)
    changed = library.update_metadata("manuals", before.document_id, {"part": "valve"})
    assert changed.metadata == {"author": "Ada", "part": "valve"}
    assert opened.documents.get("manuals", "a.md")[0] == replace(before, metadata=changed.metadata)
    assert (filtered("part", "pump"), filtered("part", "valve"), filtered("author", "Ada")) == (0, 1, 1)
    assert found(opened, "bearings") == ["The bearings are greased."]
    again = Upload.of_bytes("manuals", "a.md", "", content, {"part": "valve"})
    assert library.ingest(again, UNSCHEDULED).status is IngestStatus.UNCHANGED
    with pytest.raises(InvalidRequest):
        library.update_metadata("manuals", "a.md", {"Part": "valve"})
    with pytest.raises(DocumentNotFound):
        library.update_metadata("manuals", "b.md", {})
    with pytest.raises(CollectionNotFound):
        library.update_metadata("other", "a.md", {})


def test_what_does_not_exist_is_not_found(library: DocumentLibrary, documents: DocumentStore) -> None:
    with pytest.raises(CollectionNotFound, match="no documents have been ingested"):
        documents.get("manuals", "a.txt")
    put(library, "a.txt", "text")
    with pytest.raises(CollectionNotFound, match="known collections: manuals"):
        documents.list("other", None, 1)
    with pytest.raises(CollectionNotFound):
        library.delete("other", "a.txt")
    with pytest.raises(DocumentNotFound):
        documents.get("manuals", "b.txt")


MANUAL = """# Pump

## Bearings

The bearings are greased every 2,000 hours. The bearings take lithium grease.

## Siegel

Die Gleitringdichtung wird mit sauberem Wasser gesp\u00fclt, bevor die Pumpe l\u00e4uft.
"""


def test_chunks_tell_where_the_text_was_cut(library: DocumentLibrary, documents: DocumentStore) -> None:
    info = put(library, "pump.md", MANUAL).document
    assert info is not None
    text = documents.get("manuals", "pump.md")[1]
    page = library.chunks("manuals", "pump.md", None, 10, 1 << 20)
    assert (page.document, page.next) == (info, None)
    assert page.chunk_tokens is not None
    assert [each.position for each in page.chunks] == [0, 1]
    assert [each.headings for each in page.chunks] == [("Pump", "Bearings"), ("Pump", "Siegel")]
    assert [each.language for each in page.chunks] == ["en", "de"]
    assert all(each.indexed and 0 < each.tokens <= page.chunk_tokens for each in page.chunks)
    assert [each.text for each in page.chunks] == [text[each.start : each.end] for each in page.chunks]
    whole = "".join(each.before + each.text for each in page.chunks)
    assert whole == text[: page.chunks[-1].end]


def test_a_range_comes_with_the_chunks_that_it_touches_and_the_next(
    library: DocumentLibrary, documents: DocumentStore
) -> None:
    text = "\n\n".join(f"# Part {part}\n\nValve {part} is closed. Then pump {part} is started." for part in range(9))
    info = put(library, "parts.md", text).document
    assert info is not None
    record, whole, every = documents.get_with_chunks("manuals", info.document_id, 0, info.characters)
    assert (record, whole) == (info, documents.get("manuals", info.document_id)[1])
    assert [chunk.headings for chunk in every] == [(f"Part {part}",) for part in range(9)]
    for start in range(0, info.characters, 7):
        for end in (start + 1, start + 60):
            _, read, chunks = documents.get_with_chunks("manuals", "parts.md", start, end)
            following = [chunk for chunk in every if chunk.start >= end][:1]
            touched = [chunk for chunk in every if chunk.end > start and chunk.start < end]
            assert (read, list(chunks)) == (whole[start:end], touched + following)


def test_chunks_come_in_pages(library: DocumentLibrary) -> None:
    put(library, "pump.md", "\n\n".join(f"# Part {each}\n\nIt weighs {each} kg." for each in range(5)))
    whole = library.chunks("manuals", "pump.md", None, 100, 1 << 20).chunks
    assert len(whole) == 5
    for limit, most in ((2, 1 << 20), (100, 1)):
        seen: list[StoredChunk] = []
        after: int | None = None
        while True:
            page = library.chunks("manuals", "pump.md", after, limit, most)
            seen += page.chunks
            after = page.next
            if after is None:
                break
        assert tuple(seen) == whole
    assert library.chunks("manuals", "pump.md", 4, 10, 1 << 20).chunks == ()


def test_terms_of_a_chunk_are_those_that_find_it(library: DocumentLibrary, documents: DocumentStore) -> None:
    put(library, "pump.md", MANUAL)
    put(library, "valve.md", "# Valve\n\nThe valve has no bearings.")
    terms = documents.chunk_terms("manuals", "pump.md", 0)
    assert (terms.position, terms.left_out, terms.collection_chunks) == (0, 0, 3)
    found = {each.word: each for each in terms.terms}
    assert all(each.indexed for each in terms.terms)
    bearings = found["Bearings"]
    assert (bearings.occurrences, bearings.in_headings, bearings.chunks) == (2, True, 2)
    number = found["2,000"]
    assert (number.term, number.occurrences, number.in_headings, number.chunks) == ("2000", 1, False, 1)
    assert (found["Pump"].occurrences, found["Pump"].chunks) == (0, 2)
    assert "Valve" not in found


def test_chunks_of_what_is_not_there_are_refused(library: DocumentLibrary, documents: DocumentStore) -> None:
    put(library, "pump.md", MANUAL)

    def list_chunks(collection: str, document: str, after: int) -> object:
        return library.chunks(collection, document, after, 1, 1)

    for refused in (documents.chunk_terms, list_chunks):
        with pytest.raises(CollectionNotFound):
            refused("nothing", "pump.md", 0)
        with pytest.raises(DocumentNotFound):
            refused("manuals", "nothing", 0)
    with pytest.raises(InvalidRequest, match="no chunk 2"):
        documents.chunk_terms("manuals", "pump.md", 2)


def test_many_threads_may_ingest_search_and_delete_at_once(opened: OpenDirectory) -> None:
    library = opened.library
    put(library, "anchor.txt", "The anchor stays.")

    def work(thread: int) -> None:
        for number in range(4):
            name = f"{thread}-{number}.txt"
            assert put(library, name, f"Valve {name} is open.").status is IngestStatus.ADDED
            assert opened.documents.get("manuals", name)[1] == f"Valve {name} is open."
            if number % 2:
                library.delete("manuals", name)

    with ThreadPoolExecutor(5) as pool:
        workers = [pool.submit(work, thread) for thread in range(4)]
        while not all(worker.done() for worker in workers):
            assert "The anchor stays." in found(opened, "anchor")
        for worker in workers:
            worker.result()

    expected = {"anchor.txt"} | {f"{thread}-{number}.txt" for thread in range(4) for number in (0, 2)}
    assert {info.name for info in opened.documents.list("manuals", None, 100)} == expected
