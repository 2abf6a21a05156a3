"""Machines that were to write an answer and do something else, over the real wire: gRPC and HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from edge_rag.api.v1 import generation_pb2, rag_pb2
from tests.support.peer_daemon import HEAD, HttpServer, chunk, event, serving

Behaviour = Callable[[bytes, grpc.aio.ServicerContext[Any, Any]], AsyncIterator[bytes]]
HttpBehaviour = Callable[[bytes, asyncio.StreamWriter], Any]


def message(**event: Any) -> bytes:
    """Returns a message of an answer as bytes."""
    return generation_pb2.GenerateResponse(**event).SerializeToString()


FINISHED = message(finished=rag_pb2.Finished(reason=rag_pb2.FINISH_REASON_STOP))


async def silent(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
    """Takes the request and never says a word."""
    await asyncio.Event().wait()
    yield b""


async def empty(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
    """Ends the stream without a message."""
    if not request:
        yield b""


async def wordless(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
    """Ends the answer without a word."""
    yield FINISHED


async def garbage(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
    """Sends bytes that are no message."""
    while True:
        yield b"\xff\xfe<html>"


async def endless(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
    """Never comes to an end."""
    while True:
        yield message(text="and so on ")


async def endlessly_nothing(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
    """Keeps the stream busy without a word."""
    while True:
        yield message(text="")


async def lying(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
    """Says what is in no passage: sentences, tokens and vocabularies that do not exist."""
    yield message(quoted=generation_pb2.QuotedSentence(passage=77, sentence=1))
    yield message(tokens=generation_pb2.TokenChunk(ids=[4_000_000_000]))
    yield FINISHED


async def dying(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
    """Breaks off at once, as a process that is killed."""
    if request:
        await context.abort(grpc.StatusCode.UNAVAILABLE, "killed")
    yield b""


async def hanging(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
    """Says something, then nothing any more."""
    yield message(text="The ")
    await asyncio.Event().wait()


BEHAVIOURS: tuple[Behaviour, ...] = (
    silent,
    empty,
    wordless,
    garbage,
    endless,
    endlessly_nothing,
    lying,
    dying,
    hanging,
)


@contextmanager
def wayward(behaviour: Behaviour, certificate: tuple[bytes, bytes] | None = None) -> Iterator[str]:
    """Serves a behaviour as the Generation service on loopback and gives its address.

    Args:
        behaviour: What it does.
        certificate: Key and certificate, PEM, to serve TLS with.
    """

    class Handler(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs only
        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
            return grpc.unary_stream_rpc_method_handler(behaviour)

    credentials = None if certificate is None else grpc.ssl_server_credentials([certificate])
    with serving(lambda server: server.add_generic_rpc_handlers((Handler(),)), credentials) as address:
        yield address


def said(text: str, reason: str | None = None) -> bytes:
    """Returns an event of an OpenAI-compatible server."""
    ended = "null" if reason is None else f'"{reason}"'
    return event(f'{{"choices": [{{"delta": {{"content": "{text}"}}, "finish_reason": {ended}}}]}}')


async def http_silent(body: bytes, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def http_refusing(body: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n")


async def http_empty(body: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + chunk(b""))


async def http_page(body: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>")


async def http_garbage(body: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + event("{]") + event("[1, 2]") + event('{"choices": [7]}'))


async def http_half_a_character(body: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + said("\\ud800"))


async def http_broken_off(body: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + said("The ") + chunk(b"data: {"))
    await writer.drain()
    writer.close()


async def http_endless(body: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD)
    while not writer.is_closing():
        writer.write(said("and so on "))
        await writer.drain()


async def http_endless_line(body: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + chunk(b"data: "))
    while not writer.is_closing():
        writer.write(chunk(b"x" * 65536))
        await writer.drain()


async def http_endlessly_nothing(body: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD)
    while not writer.is_closing():
        writer.write(chunk(b": still here\n\n"))
        await writer.drain()


HTTP_BEHAVIOURS: tuple[HttpBehaviour, ...] = (
    http_silent,
    http_refusing,
    http_empty,
    http_page,
    http_garbage,
    http_half_a_character,
    http_broken_off,
    http_endless,
    http_endless_line,
    http_endlessly_nothing,
)


@contextmanager
def wayward_http(behaviour: HttpBehaviour) -> Iterator[HttpServer]:
    """Serves a behaviour over HTTP on loopback."""
    server = HttpServer(behaviour)
    try:
        yield server
    finally:
        server.stop()
