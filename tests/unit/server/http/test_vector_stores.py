"""Requests about vector stores, without a daemon: pages, chunking strategies, attributes and scores."""

from collections.abc import Sequence
from datetime import UTC, datetime
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.documents.collection import CollectionInfo, CollectionSettings
from edge_rag.core.documents.document import RejectionCause
from edge_rag.core.documents.files import Attachment
from edge_rag.core.documents.jobs import JobDocumentState as State
from edge_rag.core.documents.jobs import JobId
from edge_rag.core.documents.metadata import Metadata
from edge_rag.core.ids import ChunkId, DocumentId
from edge_rag.core.limits.request_fields import name_of_title, parse_collection_name
from edge_rag.core.passage import Passage, RankedPassage, relevances
from edge_rag.errors import InvalidRequest
from edge_rag.server.http.openai.filters import attributes_of, parse_attributes
from edge_rag.server.http.openai.pages import following, page_object, parse_page, read_page
from edge_rag.server.http.openai.vector_store_files import (
    batch_status,
    count_files,
    file_object,
    parse_chunking,
    parse_files,
)
from edge_rag.server.http.openai.vector_stores import store_object
from edge_rag.service.files import FileToAttach

ENTRIES = [f"{number:03}" for number in range(7)]


async def listed(**query: str) -> tuple[list[str], bool]:
    async def read(cursor: str | None, limit: int, newest_first: bool) -> Sequence[str]:
        return following(ENTRIES[::-1] if newest_first else ENTRIES, cursor, limit, str)

    return await read_page(parse_page(query), read, str)


@pytest.mark.parametrize(
    ("query", "page", "has_more"),
    [
        ({}, ENTRIES[::-1], False),
        ({"limit": "3"}, ["006", "005", "004"], True),
        ({"limit": "3", "after": "004"}, ["003", "002", "001"], True),
        ({"limit": "3", "after": "001"}, ["000"], False),
        ({"after": "000"}, [], False),
        ({"limit": "3", "order": "asc"}, ["000", "001", "002"], True),
        ({"limit": "4", "order": "asc", "after": "002"}, ["003", "004", "005", "006"], False),
        ({"limit": "3", "before": "001"}, ["004", "003", "002"], True),
        ({"limit": "3", "before": "004"}, ["006", "005"], False),
        ({"limit": "2", "order": "asc", "before": "002"}, ["000", "001"], False),
        ({"limit": "2", "order": "asc", "before": "005"}, ["003", "004"], True),
        ({"before": "006"}, [], False),
        ({"limit": "2", "after": "005", "before": "002"}, ["004", "003"], False),
        ({"limit": "2", "after": "005", "before": "001"}, ["004", "003"], True),
        ({"limit": "2", "after": "003", "before": "001"}, ["002"], False),
        ({"after": "003", "before": "002"}, [], False),
    ],
)
async def test_a_page_lies_on_its_side_of_the_cursor(query: dict[str, str], page: list[str], has_more: bool) -> None:
    assert await listed(**query) == (page, has_more)


@given(st.integers(1, 9), st.sampled_from(("asc", "desc")))
async def test_pages_one_after_the_other_are_the_whole_list(limit: int, order: str) -> None:
    seen: list[str] = []
    has_more = True
    while has_more:
        cursor = {"after": seen[-1]} if seen else {}
        page, has_more = await listed(limit=str(limit), order=order, **cursor)
        seen += page
    assert seen == (ENTRIES if order == "asc" else ENTRIES[::-1])


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"limit": "0"}, "limit"),
        ({"limit": "101"}, "limit"),
        ({"limit": "-1"}, "limit"),
        ({"limit": "٣"}, "limit"),
        ({"limit": "9" * 5000}, "limit"),
        ({"order": "up"}, "order"),
        ({"filter": "completed"}, "filter"),
        ({"after": "999"}, "after"),
    ],
)
async def test_a_page_that_cannot_be_had_is_refused_by_its_parameter(query: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        await listed(**query)
    assert error.value.field == field


def test_an_empty_page_has_no_ends() -> None:
    empty: dict[str, Any] = {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}
    assert page_object([], has_more=False) == empty


STATIC = {"type": "static", "static": {"max_chunk_size_tokens": 200, "chunk_overlap_tokens": 0}}


@pytest.mark.parametrize(
    ("strategy", "tokens"), [(None, None), ({"type": "auto"}, None), (STATIC, 200)], ids=["absent", "auto", "static"]
)
def test_a_chunking_strategy_is_a_size_of_chunks(strategy: Any, tokens: int | None) -> None:
    assert parse_chunking({"chunking_strategy": strategy}) == tokens


@pytest.mark.parametrize(
    ("strategy", "field"),
    [
        ({"type": "semantic"}, "chunking_strategy.type"),
        ({"type": "static"}, "chunking_strategy.type"),
        ({"type": "auto", "static": STATIC["static"]}, "chunking_strategy.type"),
        ({"static": STATIC["static"]}, "chunking_strategy.type"),
        ({"type": "static", "static": {}}, "chunking_strategy.static.max_chunk_size_tokens"),
        (
            {"type": "static", "static": {"max_chunk_size_tokens": 800, "chunk_overlap_tokens": 400}},
            "chunking_strategy.static.chunk_overlap_tokens",
        ),
        (
            {"type": "static", "static": {"max_chunk_size_tokens": 8, "chunk_overlap_tokens": 0}},
            "chunking_strategy.static.max_chunk_size_tokens",
        ),
        ({**STATIC, "model": "x"}, "chunking_strategy.model"),
    ],
)
def test_a_chunking_strategy_that_cannot_be_had_is_refused_by_its_field(strategy: Any, field: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        parse_chunking({"chunking_strategy": strategy})
    assert error.value.field == field


def test_attributes_are_metadata_and_back() -> None:
    given = {"region": "Øst  1", "year": 2024, "share": 0.5, "checked": True}
    assert parse_attributes(given) == {"region": "Øst 1", "year": 2024.0, "share": 0.5, "checked": True}
    assert attributes_of(parse_attributes(given)) == {**given, "region": "Øst 1"}
    others: Metadata = {"created": datetime(2024, 5, 31, tzinfo=UTC), "tags": ("a", "b")}
    assert attributes_of(others) == {"created": "2024-05-31T00:00:00+00:00", "tags": "a, b"}


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ([], "attributes"),
        ({f"k{number}": 1 for number in range(17)}, "attributes"),
        ({"a": None}, "attributes.a"),
        ({"a": ["b"]}, "attributes.a"),
        ({"Not a key": "b"}, "attributes['Not a key']"),
        ({"a": " "}, "attributes['a']"),
        ({"a": inf}, "attributes['a']"),
    ],
)
def test_attributes_that_are_no_metadata_are_refused_by_their_key(value: Any, field: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        parse_attributes(value)
    assert error.value.field == field


@given(st.text(max_size=100))
def test_every_title_gives_a_legal_name_or_none(title: str) -> None:
    name = name_of_title(title)
    assert not name or parse_collection_name(name) == name == name_of_title(name)


@pytest.mark.parametrize(
    ("title", "name"),
    [("boiler_house-2", "boiler_house-2"), ("Kühlwasser / Pumpe 3", "kuhlwasser-pumpe-3"), ("手册", ""), ("-", "-")],
)
def test_a_name_resembles_its_title(title: str, name: str) -> None:
    assert name_of_title(title) == name


def ranked(score: float) -> RankedPassage:
    return RankedPassage(Passage(ChunkId(1), DocumentId("d"), "d", None, 0, 1, "t"), score, ())


@given(st.lists(st.floats(-1e6, 1e6), max_size=8), st.floats(0, 1))
def test_scores_keep_the_order_of_the_reranker_below_the_evidence(scores: list[float], evidence: float) -> None:
    found = relevances([ranked(score) for score in sorted(scores, reverse=True)], evidence)
    assert list(found) == sorted(found, reverse=True)
    assert found[:1] == (evidence,)[: len(found)]
    assert all(0 <= each <= 1 for each in found)


def test_a_store_is_named_by_its_title_and_else_by_its_id() -> None:
    made = datetime(2026, 5, 1, tzinfo=UTC)
    info = CollectionInfo("boiler", CollectionSettings(labels={"site": "north"}), 3, 9, True, made, 1234)
    store = store_object(info, count_files({State.ADDED: (3, 1234)}))
    assert (store["id"], store["name"], store["metadata"]) == ("boiler", "boiler", {"site": "north"})
    assert (store["created_at"], store["last_active_at"], store["usage_bytes"]) == (1777593600, 1777593600, 1234)
    assert (store["status"], store["file_counts"]["completed"]) == ("completed", 3)
    titled = CollectionInfo("boiler", CollectionSettings(title="Boiler house"), 0, 0, True, made)
    assert store_object(titled, count_files({State.QUEUED: (1, 1)}))["name"] == "Boiler house"
    assert store_object(titled, count_files({State.QUEUED: (1, 1)}))["status"] == "in_progress"


@pytest.mark.parametrize(
    ("states", "status"),
    [
        ([State.QUEUED, State.CANCELLED, State.ADDED], "in_progress"),
        ([State.ADDED, State.REJECTED, State.SUPERSEDED], "completed"),
        ([State.ADDED, State.CANCELLED], "cancelled"),
        ([State.REJECTED], "failed"),
        ([State.REJECTED, State.UNCHANGED], "completed"),
    ],
)
def test_a_batch_has_ended_when_no_file_waits(states: list[State], status: str) -> None:
    counts = dict.fromkeys(states, (2, 10))
    assert batch_status(counts) == status
    found = count_files(counts)
    assert found["total"] == 2 * len(states) == sum(found.values()) - found["total"]


@pytest.mark.parametrize(
    ("state", "cause", "status", "code"),
    [
        (State.QUEUED, None, "in_progress", None),
        (State.ADDED, None, "completed", None),
        (State.REJECTED, RejectionCause.UNSUPPORTED, "failed", "unsupported_file"),
        (State.REJECTED, RejectionCause.UNUSABLE, "failed", "invalid_file"),
        (State.REJECTED, RejectionCause.INTERNAL, "failed", "server_error"),
        (State.REJECTED, None, "failed", "server_error"),
        (State.SUPERSEDED, None, "cancelled", None),
    ],
)
def test_a_failed_file_says_why(state: State, cause: RejectionCause | None, status: str, code: str | None) -> None:
    at = datetime(2026, 5, 1, tzinfo=UTC)
    document = DocumentId("d1") if state is State.ADDED else None
    found = file_object(Attachment("file-1", "a", "a.pdf", 7, state, "why", document, JobId("j"), at, cause))
    assert found["status"] == status
    assert found["last_error"] == (None if code is None else {"code": code, "message": "why"})
    assert found["usage_bytes"] == (7 if status == "completed" else 0)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "file_ids"),
        ({"file_ids": ["a"], "files": [{"file_id": "b"}]}, "files"),
        ({"file_ids": ["a", 1]}, "file_ids[1]"),
        ({"file_ids": [f"f{number}" for number in range(501)]}, "file_ids"),
        ({"file_ids": ["a", "a"]}, "file_ids"),
        ({"files": ["a"]}, "files[0]"),
        ({"files": [{"file_id": "a"}, {"attributes": {}}]}, "files[1].file_id"),
        ({"files": [{"file_id": "a", "attributes": {"b": []}}]}, "files[0].attributes.b"),
        ({"files": [{"file_id": "a", "colour": "red"}]}, "files[0].colour"),
        ({"files": [{"file_id": "a"}], "attributes": {"b": 1}}, "attributes"),
    ],
)
def test_a_batch_that_cannot_be_made_is_refused_by_its_field(body: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        parse_files(body)
    assert error.value.field == field


def test_files_of_a_batch_have_common_attributes_or_their_own() -> None:
    assert parse_files({"file_ids": ["a", "b"], "attributes": {"k": 1}}) == (
        FileToAttach("a", {"k": 1.0}),
        FileToAttach("b", {"k": 1.0}),
    )
    own = parse_files({"files": [{"file_id": "a", "attributes": {"k": "v"}}, {"file_id": "b"}]})
    assert own == (FileToAttach("a", {"k": "v"}), FileToAttach("b", {}))
