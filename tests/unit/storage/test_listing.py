"""Lists of documents: orders, searches, filters, and pages that lose no document."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_rag.core.documents.filter_text import parse_filter
from edge_rag.core.documents.listing import (
    MAX_CURSOR_CHARACTERS,
    DocumentSelection,
    ListCursor,
    ListOrder,
    check_document_filter,
)
from edge_rag.core.documents.metadata import MetadataValue
from edge_rag.core.ids import DocumentId
from edge_rag.errors import InvalidRequest
from edge_rag.storage.database import Database
from edge_rag.storage.documents import DocumentStore
from tests.support.examples import examples
from tests.unit.conftest import document_store, new_document

Described = tuple[str, str, int, dict[str, MetadataValue]]
"""Name, title, bytes and metadata of a document."""

DOCUMENTS: tuple[Described, ...] = (
    ("pumps/Manual.pdf", "Bilge pumps", 900, {"year": 2020.0, "site": "north"}),
    ("pumps/parts.md", "", 30, {"year": 2024.0, "tags": ("spare", "Überholung")}),
    ("boiler.md", "Kessel [alt]", 31, {"site": "south"}),
    ("Öl.txt", "Oil", 500, {}),
    ("O\u0308lfilter.txt", "", 7, {"site": "North pier"}),
    ("100%_sure?*.txt", "", 1, {}),
)
NAMES = {name for name, *_ in DOCUMENTS}


class Listed(NamedTuple):
    database: Database
    store: DocumentStore

    def put(self, *documents: Described, collection: str = "default") -> None:
        for name, title, size, metadata in documents:
            self.store.put(new_document(name, "text", metadata, collection=collection, title=title, size_bytes=size))


def opened(folder: Path) -> Iterator[Listed]:
    with closing(Database(folder / "documents.sqlite3")) as database:
        listed = Listed(database, document_store(folder, database))
        listed.put(*DOCUMENTS)
        listed.put(("pumps/Manual.pdf", "Of another collection", 3, {"site": "north"}), collection="other")
        listed.put(("boiler.md", "Kessel [alt]", 31, {"site": "south"}))
        yield listed


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listed]:
    yield from opened(tmp_path_factory.mktemp("unchanged"))


@pytest.fixture
def listed(tmp_path: Path) -> Iterator[Listed]:
    yield from opened(tmp_path)


@pytest.fixture
def store(unchanged: Listed) -> DocumentStore:
    return unchanged.store


def names(store: DocumentStore, selection: DocumentSelection, size: int = 2) -> list[str]:
    found: list[str] = []
    after = None
    while page := store.list("default", after, size, selection=selection):
        found += [info.name for info in page]
        after = ListCursor.decoded(
            ListCursor.after(page[-1], selection.order).encoded(selection.order), selection.order
        )
    assert store.count("default", selection) == len(found)
    return found


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        ("", NAMES),
        ("MANUAL", {"pumps/Manual.pdf"}),
        ("bilge", {"pumps/Manual.pdf"}),
        ("pumps", {"pumps/Manual.pdf", "pumps/parts.md"}),
        ("öl", {"Öl.txt", "O\u0308lfilter.txt"}),
        ("O\u0308L", {"Öl.txt", "O\u0308lfilter.txt"}),
        ("überHOLUNG", {"pumps/parts.md"}),
        ("north", {"pumps/Manual.pdf", "O\u0308lfilter.txt"}),
        ("2024", {"pumps/parts.md"}),
        ("pumps north", {"pumps/Manual.pdf"}),
        ("0%_s", {"100%_sure?*.txt"}),
        ("e?*", {"100%_sure?*.txt"}),
        ("[alt]", {"boiler.md"}),
        ("[a-z]", set()),
        ("* ?", {"100%_sure?*.txt"}),
        ("nothing like it", set()),
        ("inf", set()),
    ],
)
def test_a_search_finds_names_titles_and_metadata(store: DocumentStore, search: str, expected: set[str]) -> None:
    assert set(names(store, DocumentSelection(search))) == expected


def test_a_filter_is_on_documents(store: DocumentStore) -> None:
    condition = parse_filter('year >= 2021 or name ~ "boiler*"')
    assert set(names(store, DocumentSelection("", condition))) == {"pumps/parts.md", "boiler.md"}
    assert names(store, DocumentSelection("south", condition)) == ["boiler.md"]
    check_document_filter(condition)
    with pytest.raises(InvalidRequest, match=r"filter.*page"):
        check_document_filter(parse_filter("year = 2020 and not (page = 3 or has site)"))


@pytest.mark.parametrize("descending", [False, True])
def test_orders_are_those_of_names_sizes_and_times(store: DocumentStore, descending: bool) -> None:
    by_name = ["100%_sure?*.txt", "boiler.md", "O\u0308lfilter.txt", "pumps/Manual.pdf", "pumps/parts.md", "Öl.txt"]
    by_size = ["100%_sure?*.txt", "O\u0308lfilter.txt", "pumps/parts.md", "boiler.md", "Öl.txt", "pumps/Manual.pdf"]
    added = [name for name, *_ in DOCUMENTS]
    stored = [*(name for name in added if name != "boiler.md"), "boiler.md"]
    for order, expected in (
        (ListOrder.NAME, by_name),
        (ListOrder.SIZE, by_size),
        (ListOrder.ADDED, added),
        (ListOrder.STORED, stored),
    ):
        found = names(store, DocumentSelection(order=order, descending=descending))
        if order is ListOrder.ADDED:  # ids of one millisecond are random
            assert sorted(found) == sorted(expected)
        else:
            assert found == (expected[::-1] if descending else expected)


def test_pages_lose_and_repeat_nothing_while_documents_come_and_go(listed: Listed) -> None:
    listed.put(*((f"{number % 7}/{number}.txt", "", number % 5, {}) for number in range(40)))
    staying = {info.name for info in listed.store.list("default", None, 100)}
    selections = [DocumentSelection(order=order, descending=order is ListOrder.SIZE) for order in ListOrder]
    seen: dict[ListOrder, list[str]] = {order: [] for order in ListOrder}
    after: dict[ListOrder, ListCursor] = {}
    for step in range(7):  # by then each list has ended
        for selection in selections:
            order = selection.order
            page = listed.store.list("default", after.get(order), 8, selection=selection)
            if page:
                seen[order] += [info.name for info in page]
                after[order] = ListCursor.after(page[-1], order)
                if step % 2 == 0 and page[-1].name in staying:  # the document whose place the next page begins after
                    listed.store.delete("default", page[-1].name)
                    staying.discard(page[-1].name)
        listed.put((f"new {step}", "", step % 5, {}))
    for order in ListOrder:
        assert len(seen[order]) == len(set(seen[order]))
        assert staying <= set(seen[order])


def test_a_page_may_begin_anywhere(store: DocumentStore) -> None:
    selection = DocumentSelection(order=ListOrder.NAME)
    everything = names(store, selection)
    assert [info.name for info in store.list("default", None, 2, selection=selection, skip=3)] == everything[3:5]
    after = ListCursor.after(store.list("default", None, 1, selection=selection)[0], ListOrder.NAME)
    assert [info.name for info in store.list("default", after, 2, selection=selection, skip=2)] == everything[3:5]
    assert store.list("default", None, 2, selection=selection, skip=100) == ()


@pytest.mark.parametrize("order", ListOrder)
@pytest.mark.parametrize("begins_later", [False, True])
def test_no_page_sorts_or_scans(unchanged: Listed, order: ListOrder, begins_later: bool) -> None:
    after = ListCursor(7 if order is ListOrder.SIZE else "7", DocumentId("7")) if begins_later else None
    asked: list[tuple[str, Any]] = []

    def noted(cursor: object, sql: str, bindings: Any) -> bool:
        asked.append((sql, bindings))
        return True

    with unchanged.database.reading() as connection:
        connection.exec_trace = noted
        unchanged.store.list("default", after, 2, selection=DocumentSelection(order=order))
        connection.exec_trace = None
        ((sql, bindings),) = [each for each in asked if "ORDER BY" in each[0]]
        steps = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", bindings)]

    assert len([step for step in steps if "USING INDEX documents_" in step]) == 1
    assert not [step for step in steps if "B-TREE" in step or "SCAN" in step]
    bounds = [step for step in steps if "USING INDEX" in step and (">" in step or "<" in step)]
    assert bool(bounds) is begins_later


@settings(max_examples=examples(30), deadline=None)
@given(name=st.text(min_size=1, max_size=1024), size=st.integers(0, 1 << 40))
def test_a_place_survives_its_way_to_a_client_and_back(name: str, size: int) -> None:
    for order, key in ((ListOrder.NAME, name), (ListOrder.SIZE, size), (ListOrder.STORED, "2026-01-01T00:00:00+00:00")):
        cursor = ListCursor(key, DocumentId("0123"))
        text = cursor.encoded(order)
        assert ListCursor.decoded(text, order) == cursor
        assert len(text) <= MAX_CURSOR_CHARACTERS


FOREIGN = (
    *("", "x", "é", "W10=", "WyJhIl0=", "WzEsMl0=", "bnVsbA==", "WyJhIiwiYiJd", "WzFlMzAsImEiXQ=="),
    "Wzk5OTk5OTk5OTk5OTk5OTk5OTk5LCJhIl0=",
)


@pytest.mark.parametrize("text", FOREIGN)
def test_a_foreign_place_is_refused_by_field(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^after: .*'size'"):
        ListCursor.decoded(text, ListOrder.SIZE)
