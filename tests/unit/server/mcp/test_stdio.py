"""Messages over lines: calls beside each other, cancelled and refused ones, and lines that are none."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from edge_rag.core.answer import Finished, FinishReason, TextDelta, Usage
from edge_rag.core.documents.collection import CollectionInfo
from edge_rag.core.documents.document import DocumentInfo
from edge_rag.core.documents.filters import Filter
from edge_rag.errors import DocumentNotFound
from edge_rag.server.mcp import protocol
from edge_rag.server.mcp.box import AnswerPart, Hits, Passages, Question
from edge_rag.server.mcp.stdio import MOST_CALLS, MOST_LINE_BYTES, StdioServer, lines_of


class Failed(Exception):
    pass


class ScriptedBox:
    """Finds nothing; a query says what happens: ``wait`` until it is let go, ``fail`` or ``break``."""

    def __init__(self) -> None:
        self.started = asyncio.Semaphore(0)
        self.go_on = asyncio.Event()
        self.cancelled = 0

    def url(self, collection: str, document_id: str, start: int, end: int, page: int | None = None) -> str:
        return "box:"

    async def search(self, collection: str, query: str, limit: int, condition: Filter | None) -> Hits:
        if query == "fail":
            raise Failed("the box is busy")
        if query == "break":
            raise ZeroDivisionError
        self.started.release()
        if query == "wait":
            try:
                await self.go_on.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        return Hits(())

    @asynccontextmanager
    async def ask(self, question: Question) -> AsyncIterator[AsyncIterator[AnswerPart]]:
        async def parts() -> AsyncIterator[AnswerPart]:
            yield Passages((), 0.5)
            for _ in range(10):
                yield TextDelta("A sentence of 40 characters, or nearly. ")
            yield Finished(FinishReason.STOP, Usage(), (), None)

        yield parts()

    async def document(self, collection: str, document: str, start: int, end: int) -> tuple[DocumentInfo, str]:
        raise DocumentNotFound(document)

    async def documents(self, collection: str, cursor: str, size: int) -> tuple[Sequence[DocumentInfo], str]:
        return (), ""

    async def collections(self) -> Sequence[CollectionInfo]:
        return ()


class Conversation:
    """A server whose lines are sent by a test."""

    def __init__(self) -> None:
        self.box = ScriptedBox()
        self._sent: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._received: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        server = StdioServer(self.box, (Failed,), lambda line: self._received.put_nowait(json.loads(line)))
        self._task = asyncio.create_task(server.serve(self._lines()))

    async def _lines(self) -> AsyncIterator[bytes | None]:
        while (line := await self._sent.get()) != b"end":
            yield line

    def send(self, *lines: bytes | None) -> None:
        for line in lines:
            self._sent.put_nowait(line)

    def call(self, request_id: int, query: str) -> None:
        params = {"name": "search", "arguments": {"query": query}}
        self.send(json.dumps({"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}).encode())

    async def receive(self) -> dict[str, Any]:
        return await asyncio.wait_for(self._received.get(), 30)

    async def end(self) -> list[dict[str, Any]]:
        self.send(b"end")
        await asyncio.wait_for(self._task, 30)
        return [self._received.get_nowait() for _ in range(self._received.qsize())]


@pytest.fixture
async def talk() -> Conversation:
    return Conversation()


async def test_calls_run_beside_each_other_and_are_answered_as_they_end(talk: Conversation) -> None:
    talk.call(1, "wait")
    talk.call(2, "quick")
    assert (await talk.receive())["id"] == 2
    talk.box.go_on.set()
    assert (await talk.receive())["result"]["structuredContent"] == {"results": [], "did_you_mean": None}
    assert await talk.end() == []


async def test_a_cancelled_call_ends_and_is_not_answered(talk: Conversation) -> None:
    talk.call(1, "wait")
    await talk.box.started.acquire()
    for other in (1.5, "1", 9):
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": other}}
        talk.send(json.dumps(cancel).encode())
    talk.call(2, "quick")
    assert (await talk.receive())["id"] == 2
    assert talk.box.cancelled == 0
    talk.send(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}')
    talk.call(3, "quick")
    assert (await talk.receive())["id"] == 3
    assert talk.box.cancelled == 1
    assert await talk.end() == []


async def test_the_end_of_the_input_cancels_what_still_runs(talk: Conversation) -> None:
    for number in range(3):
        talk.call(number, "wait")
        await talk.box.started.acquire()
    assert await talk.end() == []
    assert talk.box.cancelled == 3


async def test_an_id_that_is_in_use_and_a_call_too_many_are_refused(talk: Conversation) -> None:
    for number in range(MOST_CALLS):
        talk.call(number, "wait")
        await talk.box.started.acquire()
    talk.call(0, "quick")
    assert (await talk.receive())["error"]["code"] == protocol.INVALID_REQUEST
    talk.call(MOST_CALLS, "quick")
    refused = (await talk.receive())["result"]
    assert refused["isError"]
    talk.box.go_on.set()
    assert {(await talk.receive())["id"] for _ in range(MOST_CALLS)} == set(range(MOST_CALLS))
    talk.call(0, "quick")
    assert "result" in await talk.receive()
    assert await talk.end() == []


async def test_a_failure_is_reported_and_a_fault_is_not(talk: Conversation, capsys: pytest.CaptureFixture[str]) -> None:
    talk.call(1, "fail")
    assert (await talk.receive())["result"]["content"][0]["text"] == "the box is busy"
    talk.call(2, "break")
    found = (await talk.receive())["result"]
    assert found["isError"]
    assert "ZeroDivisionError" not in found["content"][0]["text"]
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert await talk.end() == []


async def test_lines_that_are_no_messages_are_refused_and_blank_ones_skipped(talk: Conversation) -> None:
    talk.send(b"nonsense", b"", b" \r", None, b'{"jsonrpc":"2.0","id":5,"method":"ping"}\r')
    codes = [(await talk.receive())["error"]["code"] for _ in range(2)]
    assert codes == [protocol.PARSE_ERROR, protocol.INVALID_REQUEST]
    assert await talk.receive() == {"jsonrpc": "2.0", "id": 5, "result": {}}
    assert await talk.end() == []


async def test_progress_comes_before_the_answer_and_is_all_of_it(talk: Conversation) -> None:
    params = {"name": "ask", "arguments": {"question": "?"}, "_meta": {"progressToken": 4}}
    talk.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode())
    texts, amounts = [], []
    while "params" in (received := await talk.receive()):
        assert received["params"]["progressToken"] == 4
        texts.append(received["params"]["message"])
        amounts.append(received["params"]["progress"])
    answer = received["result"]["structuredContent"]["answer"]
    assert "".join(texts[1:]) == answer
    assert amounts == sorted(set(amounts))
    assert amounts[-1] == len(answer)
    assert await talk.end() == []


async def test_lines_come_whole_however_they_are_written_and_long_ones_are_left_out() -> None:
    reading, writing = os.pipe()
    found: list[bytes | None] = []

    def write() -> None:
        with os.fdopen(writing, "wb") as pipe:
            for piece in (b"on", b"e\ntwo\nth", b"ree\n", b"x" * (MOST_LINE_BYTES + 1), b"y\nfour\n", b"last"):
                pipe.write(piece)
                pipe.flush()

    done = asyncio.create_task(asyncio.to_thread(write))
    async for line in lines_of(reading):
        found.append(line)
    await done
    os.close(reading)
    assert found == [b"one", b"two", b"three", None, b"four", b"last"]
