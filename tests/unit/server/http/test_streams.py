"""Bodies that are streams: handed over as they come, bounded in size, speed and memory; and ends with the client."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from edge_rag.errors import InvalidRequest
from edge_rag.server.http import exchange as http_exchange
from edge_rag.server.http.exchange import STREAMED_BYTES, Exchange
from edge_rag.service.call import Call
from tests.unit.server.http.test_exchange import Client, Served

_MOST = 1 << 20


@dataclass
class Sender(Client):
    """A client that sends its body in pieces."""

    pieces: Sequence[bytes] = ()
    ends: bool | None = True
    given: int = 0

    async def receive(self) -> dict[str, Any]:
        if self.given < len(self.pieces):
            self.given += 1
            more = self.given < len(self.pieces) or self.ends is not True
            return {"type": "http.request", "body": self.pieces[self.given - 1], "more_body": more}
        if self.ends is None:
            await asyncio.Event().wait()
        if self.ends:
            await self.gone.wait()
        return {"type": "http.disconnect"}


class Taker:
    """A handler that keeps the pieces it gets, and the memory that is held meanwhile."""

    def __init__(self, served: Served, most: int = _MOST) -> None:
        self.served = served
        self.most = most
        self.taken: list[bytes] = []
        self.held: list[int] = []
        self.cancelled = False

    async def __call__(self, call: Call, exchange: Exchange) -> None:
        try:
            async for piece in exchange.pieces(self.most):
                self.taken.append(piece)
                self.held.append(self.served.messages.in_use)
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        await exchange.respond_empty(204, {})


async def test_a_body_is_handed_over_in_pieces_within_the_memory_of_messages() -> None:
    served, client = Served(), Sender(pieces=[b"x" * 1000] * 300)
    taker = Taker(served)
    await served.serve(client, taker, more={"content-length": "300000"}, streams=True)
    assert client.status == 204
    assert b"".join(taker.taken) == b"x" * 300_000
    assert all(STREAMED_BYTES <= len(piece) < STREAMED_BYTES + 1000 for piece in taker.taken[:-1])
    assert set(taker.held) == {2 * STREAMED_BYTES}


async def test_a_request_without_a_body_is_an_empty_stream() -> None:
    served, client = Served(), Sender()
    taker = Taker(served)
    await served.serve(client, taker, more={"content-length": "0"}, streams=True)
    assert (client.status, taker.taken) == (204, [])


@pytest.mark.parametrize("announced", [True, False])
async def test_a_body_that_is_too_large_is_refused(announced: bool) -> None:
    served, client = Served(), Sender(pieces=[b"x" * 10_000] * 40)
    taker = Taker(served, most=100_000)
    length = {"content-length": "400000" if announced else "", "transfer-encoding": "" if announced else "chunked"}
    await served.serve(client, taker, more=length, streams=True)
    assert (client.status, served.count("Read", "INVALID_ARGUMENT")) == (413, 1)
    assert sum(map(len, taker.taken)) <= (0 if announced else 100_000)
    assert client.given == 40  # it was read to its end, so that the client sees why


async def test_a_sender_that_stalls_is_ended_and_what_came_is_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_exchange, "BODY_S", 0.01)
    monkeypatch.setattr(http_exchange, "_DISCARD_STREAM_S", 0.01)
    served, client = Served(), Sender(pieces=[b"some"], ends=None)
    taker = Taker(served)
    await served.serve(client, taker, more={"content-length": "400"}, streams=True)
    assert (client.status, taker.taken) == (504, [b"some"])
    assert client.headers["connection"] == "close"


async def test_a_client_that_goes_in_mid_body_ends_its_call_and_what_came_is_handed_over() -> None:
    served, client = Served(), Sender(pieces=[b"so", b"me"], ends=False)
    taker = Taker(served)
    await served.serve(client, taker, more={"content-length": "400"}, streams=True)
    assert (client.messages, taker.taken, taker.cancelled) == ([], [b"some"], True)
    assert served.count("Read", "CANCELLED") == 1


async def test_a_client_that_goes_after_its_body_ends_its_call() -> None:
    served, client = Served(), Sender(pieces=[b"some"])
    ended: list[bytes] = []

    async def wait(call: Call, exchange: Exchange) -> None:
        taken = [piece async for piece in exchange.pieces(_MOST)]
        client.gone.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.extend(taken)

    await served.serve(client, wait, more={"content-length": "4"}, streams=True)
    assert (ended, served.count("Read", "CANCELLED")) == ([b"some"], 1)


async def test_a_handler_that_refuses_before_it_reads_is_heard() -> None:
    served, client = Served(), Sender(pieces=[b"x" * 10_000] * 40)

    async def refuse(call: Call, exchange: Exchange) -> None:
        raise InvalidRequest("file", "is not wanted")

    await served.serve(client, refuse, more={"content-length": "400000"}, streams=True)
    assert (client.status, client.given) == (400, 40)
