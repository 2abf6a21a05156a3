"""The contract of the client for asyncio alone: it follows the tasks that use it."""

import asyncio
import io
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from typing import Any

import grpc
import pytest

from edge_rag.api.v1 import documents_pb2, rag_pb2
from edge_rag.client import AsyncClient
from tests.unit.cli.scripted_daemon import ScriptedDaemon, start

Handler = Callable[[Any, grpc.ServicerContext], Any]


@pytest.fixture
def scripted() -> Iterator[ScriptedDaemon]:
    daemon = ScriptedDaemon()
    server = start(daemon, "127.0.0.1:0")
    yield daemon
    server.stop(0).wait()


class Endless:
    """Calls that say when they have begun and when their client has gone."""

    def __init__(self) -> None:
        self.begun, self.gone = threading.Event(), threading.Event()

    def _begin(self, context: grpc.ServicerContext) -> None:
        context.add_callback(self.gone.set)
        self.begun.set()

    def search(self, _: Any, context: grpc.ServicerContext) -> rag_pb2.SearchResponse:
        self._begin(context)
        self.gone.wait(30)
        return rag_pb2.SearchResponse()

    def ask(self, _: Any, context: grpc.ServicerContext) -> Iterator[rag_pb2.AskResponse]:
        self._begin(context)
        yield rag_pb2.AskResponse(text=rag_pb2.TextDelta(text="on "))
        self.gone.wait(30)

    def ingest(self, parts: Iterator[Any], context: grpc.ServicerContext) -> documents_pb2.IngestResponse:
        self._begin(context)
        self.gone.wait(30)
        return documents_pb2.IngestResponse()


async def answer(client: AsyncClient) -> None:
    async with aclosing(client.ask("how?")) as events:
        async for _ in events:
            pass


async def hand_over(client: AsyncClient) -> None:
    await client.ingest("a.md", lambda: io.BytesIO(bytes(1 << 20)))


async def search(client: AsyncClient) -> None:
    await client.search("oil")


@pytest.mark.parametrize("call", [search, answer, hand_over])
async def test_cancelling_a_task_cancels_its_call_and_no_other(
    scripted: ScriptedDaemon, call: Callable[[AsyncClient], Awaitable[None]]
) -> None:
    endless = Endless()
    scripted.script("Search", endless.search, lambda _, __: rag_pb2.SearchResponse())
    scripted.script("Ask", endless.ask)
    scripted.script("Ingest", endless.ingest)
    async with AsyncClient(scripted.address) as client:
        if call is not search:
            scripted.script("Search", lambda _, __: rag_pb2.SearchResponse())
        task = asyncio.ensure_future(call(client))
        assert await asyncio.to_thread(endless.begun.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(endless.gone.wait, 30)
        assert (await client.search("oil")).hits == ()


async def test_a_time_limit_of_the_program_is_its_own_error(scripted: ScriptedDaemon) -> None:
    endless = Endless()
    scripted.script("Search", endless.search)
    async with AsyncClient(scripted.address) as client:

        async def limited() -> None:
            async with asyncio.timeout(None) as limit:
                begun = asyncio.ensure_future(asyncio.to_thread(endless.begun.wait, 30))
                begun.add_done_callback(lambda _: limit.reschedule(0))
                await client.search("oil")

        with pytest.raises(TimeoutError):
            await limited()
        assert await asyncio.to_thread(endless.gone.wait, 30)


async def test_leaving_a_loop_over_an_answer_cancels_the_call(scripted: ScriptedDaemon) -> None:
    endless = Endless()
    scripted.script("Ask", endless.ask)
    async with AsyncClient(scripted.address) as client:
        async for _ in client.ask("how?"):
            break
        assert await asyncio.to_thread(endless.gone.wait, 30)


async def test_the_event_loop_runs_while_a_file_is_read(scripted: ScriptedDaemon) -> None:
    loops_turn, threads = threading.Event(), set[int]()

    class Slow(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            threads.add(threading.get_ident())
            assert loops_turn.wait(30)
            return super().read(size)

    def take(parts: Iterator[Any], _: Any) -> documents_pb2.IngestResponse:
        list(parts)
        outcome = documents_pb2.IngestResponse.Outcome(name="a.md", status=documents_pb2.INGEST_STATUS_ADDED)
        return documents_pb2.IngestResponse(outcomes=[outcome])

    scripted.script("Ingest", take)
    async with AsyncClient(scripted.address) as client:
        task = asyncio.ensure_future(client.ingest("a.md", lambda: Slow(b"text")))
        asyncio.get_running_loop().call_later(0.01, loops_turn.set)
        await task
    assert threading.get_ident() not in threads
    assert threads


def test_a_client_may_be_made_before_its_loop_runs(scripted: ScriptedDaemon) -> None:
    scripted.script("Search", lambda _, __: rag_pb2.SearchResponse())
    client = AsyncClient(scripted.address)

    async def work() -> None:
        async with client:
            assert (await client.search("oil")).hits == ()

    asyncio.run(work())
