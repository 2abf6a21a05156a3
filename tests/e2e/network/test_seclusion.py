import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.message import Message

from edge_rag.api.v1 import (
    access_pb2,
    access_pb2_grpc,
    collections_pb2,
    collections_pb2_grpc,
    documents_pb2,
    documents_pb2_grpc,
    rag_pb2,
    rag_pb2_grpc,
)
from edge_rag.client import parse_filter
from edge_rag.wire.metadata import filter_to_message
from tests.e2e.support.secured_daemon import (
    READ,
    WRITE,
    Box,
    end,
    refused,
)

PLACES: dict[tuple[str, str], dict[str, Any]] = {
    ("Rag", "Ask"): {"question": "What is the reactor code?"},
    ("Rag", "Search"): {"query": "reactor code"},
    ("Documents", "Ingest"): {"name": "note.txt"},
    ("Documents", "StartIngest"): {"name": "note.txt"},
    ("Documents", "Get"): {"document": "reactor.txt"},
    ("Documents", "List"): {},
    ("Documents", "Delete"): {"document": "reactor.txt"},
    ("Collections", "Create"): {},
    ("Collections", "Get"): {},
    ("Collections", "Update"): {"settings": {"description": "x"}, "updateMask": "description"},
    ("Collections", "Delete"): {},
    ("Admin", "MoveIndex"): {"backend": "INDEX_BACKEND_FAISS"},
}
"""What a request about a collection needs besides its name; where the request is a stream, its first one's header."""


def about(service: str, method: str, collection: str) -> Message | None:
    """Returns a request about a collection; None where a call is about none."""
    described = descriptor_pool.Default().FindServiceByName(f"edge_rag.v1.{service}").methods_by_name[method]
    fields = described.input_type.fields_by_name
    header = fields["header"].message_type if "header" in fields else None
    if service == "Collections" and "name" in fields:
        content: dict[str, Any] = {"name": collection}
    elif "collection" in (fields if header is None else header.fields_by_name):
        content = {"collection": collection}
    else:
        return None
    content |= PLACES[service, method]
    request = message_factory.GetMessageClass(described.input_type)()
    return json_format.ParseDict(content if header is None else {"header": content}, request)


@pytest.mark.parametrize(("service", "method"), sorted(READ | WRITE))
def test_a_call_about_a_collection_of_others_is_answered_as_if_there_were_none(
    box: Box, service: str, method: str
) -> None:
    there, nowhere = (about(service, method, name) for name in ("b", "nowhere"))
    if there is None or nowhere is None:
        assert (service, method) not in PLACES
        return
    with box.channel("reader-a" if (service, method) in READ else "writer-a") as channel:
        ends = [end(channel, service, method, request) for request in (there, nowhere)]
    assert {code for code, _ in ends} == {grpc.StatusCode.NOT_FOUND}
    assert ends[0][1].replace("'b'", "X") == ends[1][1].replace("'nowhere'", "X")


def search(box: Box, name: str, **fields: Any) -> rag_pb2.SearchResponse:
    with box.channel(name) as channel:
        return rag_pb2_grpc.RagStub(channel).Search(rag_pb2.SearchRequest(**fields), timeout=60)


def put(box: Box, collection: str, texts: dict[str, str]) -> list[str]:
    def parts() -> Iterator[documents_pb2.IngestRequest]:
        for name, text in texts.items():
            header = documents_pb2.IngestRequest.Header(collection=collection, name=name)
            yield documents_pb2.IngestRequest(header=header)
            yield documents_pb2.IngestRequest(content=text.encode())

    with box.channel("admin") as channel:
        outcomes = documents_pb2_grpc.DocumentsStub(channel).Ingest(parts(), timeout=60).outcomes
    return [outcome.document.id for outcome in outcomes]


def test_a_document_of_others_is_not_had_by_its_id_nor_by_a_filter(box: Box) -> None:
    (hidden,) = put(box, "others", {"hidden.txt": "The hidden valve is behind the third bulkhead."})
    with box.channel("reader-a") as channel:
        documents = documents_pb2_grpc.DocumentsStub(channel)
        said = [
            refused(lambda asked=asked: documents.Get(documents_pb2.GetDocumentRequest(collection="a", document=asked)))  # type: ignore[misc]
            for asked in (hidden, hidden[::-1])
        ]
    assert {error.code() for error in said} == {grpc.StatusCode.NOT_FOUND}
    assert str(said[0].details()).replace(hidden, "X") == str(said[1].details()).replace(hidden[::-1], "X")
    named = filter_to_message(parse_filter('name ~ "h*"'))
    assert not search(box, "reader-a", query="hidden valve", collection="a", filter=named).hits


def test_what_others_store_changes_no_score_of_a_search(box: Box) -> None:
    def scores() -> list[tuple[float, float, float, float]]:
        found = search(box, "reader-a", query="When does the galley open?", collection="a", explain=True)
        return [
            (hit.score, why.dense_score, why.lexical_score, why.fused_score)
            for hit, why in zip(found.hits, found.explanations, strict=True)
        ]

    before = scores()
    put(box, "others", {f"galley-{number}.txt": f"Galley {number} opens at noon. " * 3 for number in range(20)})
    assert scores() == before


def test_what_others_asked_is_in_no_cache_that_could_be_timed(box: Box) -> None:
    text = "The windlass is overhauled every second winter. The windlass brake is adjusted by the bosun."
    put(box, "others", {"windlass.txt": text})
    put(box, "a", {"windlass.txt": text})

    def cached(name: str, collection: str) -> int:
        with box.channel(name) as channel:
            request = rag_pb2.AskRequest(
                question="When is the windlass overhauled?",
                collection=collection,
                mode=rag_pb2.ANSWER_MODE_FREE,
                sampling=rag_pb2.Sampling(max_tokens=8),
            )
            events = list(rag_pb2_grpc.RagStub(channel).Ask(request))
            return events[-1].finished.usage.cached_prompt_tokens

    cached("admin", "others")
    assert cached("admin", "others") > 0
    assert cached("reader-a", "a") == 0
    assert cached("reader-a", "a") > 0


def test_collections_are_listed_with_counts_only_to_those_they_are_for(box: Box) -> None:
    with box.channel("reader-a") as channel:
        listed = collections_pb2_grpc.CollectionsStub(channel).List(collections_pb2.ListCollectionsRequest())
        who = access_pb2_grpc.AccessStub(channel).WhoAmI(access_pb2.WhoAmIRequest())
    assert {collection.name for collection in listed.collections} == {"a"}
    assert list(who.collections) == ["a"]


def test_a_job_is_not_told_to_others_from_the_first_document_on_that_is_not_theirs(box: Box) -> None:
    more = threading.Event()

    def parts() -> Iterator[documents_pb2.IngestRequest]:
        more.wait(60)
        header = documents_pb2.IngestRequest.Header(collection="others", name="unseen.txt")
        yield documents_pb2.IngestRequest(header=header)
        yield documents_pb2.IngestRequest(content=b"The unseen pump is grey.")

    with box.channel("admin") as admin, box.channel("writer-a") as channel:
        handed_over = documents_pb2_grpc.DocumentsStub(admin).StartIngest(parts(), timeout=120)
        job = next(iter(handed_over)).job.id
        documents = documents_pb2_grpc.DocumentsStub(channel)
        assert job not in {known.id for known in documents.ListJobs(documents_pb2.ListJobsRequest()).jobs}
        watching = iter(documents.WatchJob(documents_pb2.WatchJobRequest(job_id=job), timeout=120))
        told = [next(watching)]
        more.set()
        error = refused(lambda: told.extend(watching))
        list(handed_over)
        assert error.code() is grpc.StatusCode.NOT_FOUND
        assert not any(page.documents or page.job.collections or page.HasField("work") for page in told)
        assert "unseen" not in str(error.details())
        newest = documents.ListJobs(documents_pb2.ListJobsRequest(limit=1)).jobs
        assert job not in {known.id for known in newest}
