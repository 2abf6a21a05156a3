"""Parsers of a pool read at the same time, and one that is ended is replaced."""

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from edge_rag.core.documents.document import ParsedDocument
from edge_rag.errors import DocumentRejected
from edge_rag.ingest.parsing.document_format import ParsingLimits
from edge_rag.ingest.parsing.sandbox.pool import ParserPool
from edge_rag.ingest.parsing.sandbox.process import ParserProcess

_SECONDS = 60.0


@pytest.fixture(scope="module")
def pool() -> Iterator[ParserPool]:
    with closing(ParserPool(lambda: ParserProcess(ParsingLimits()), 2)) as opened:
        yield opened


def read(pool: ParserPool, collection: str = "one", text: bytes = b"The valve is green.") -> ParsedDocument:
    with pool.acquire(collection) as parser:
        return parser.read("a.txt", "", text, collection)[1]


def test_two_documents_are_read_at_once_and_a_third_waits(pool: ParserPool) -> None:
    done = threading.Event()

    def third() -> None:
        read(pool)
        done.set()

    with pool.acquire("one") as first, pool.acquire("two") as second:
        assert first is not second
        waiting = threading.Thread(target=third)
        waiting.start()
        assert first.read("a.txt", "", b"The valve is green.", "one")[1].text == "The valve is green."
        assert second.read("b.txt", "", b"The pump is red.", "two")[1].text == "The pump is red."
        assert not done.is_set()
    waiting.join(_SECONDS)
    assert done.is_set()


def test_a_collection_gets_the_process_that_has_read_for_it(pool: ParserPool) -> None:
    pids: dict[str, int | None] = {}
    for collection in ("one", "two", "one", "two"):
        with pool.acquire(collection) as parser:
            parser.read("a.txt", "", b"The valve is green.", collection)
            assert pids.setdefault(collection, parser.pid) == parser.pid


def test_a_document_being_read_is_ended_and_the_next_one_gets_another_process(pool: ParserPool) -> None:
    long = b"a\n\n" * 3_000_000
    with pool.acquire("one") as parser:
        parser.read("a.txt", "", b"The valve is green.", "one")
        process = parser.pid
        kill = threading.Timer(0.1, parser.kill)
        kill.start()
        with pytest.raises(DocumentRejected):
            parser.read("long.txt", "", long, "one")
        kill.join()
    with pool.acquire("one") as other:
        other.read("a.txt", "", b"The valve is green.", "one")
        assert other.pid not in (None, process)


def test_a_parser_that_is_ended_while_its_process_starts_reads_nothing(pool: ParserPool) -> None:
    with pool.acquire("three") as parser:
        parser.kill()
        with pytest.raises(DocumentRejected):
            parser.read("a.txt", "", b"The valve is green.", "three")
    assert read(pool, "three").text == "The valve is green."
