"""Remotes that fail or misbehave when they should generate, over real gRPC and HTTP."""

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
    return generation_pb2.GenerateResponse(**event).SerializeToString()


FINISHED = message(finished=rag_pb2.Finished(reason=rag_pb2.FINISH_REASON_STOP))


async def silent(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


async def empty(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
    """Ends the stream without a message."""
    if not request:
        yield b""


async def no_tokens(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
    """Finishes without a token."""
    yield FINISHED


async def garbage(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
    """Sends bytes that are not a message."""
    while True:
        yield b"\xff\xfe<html>"


async def endless(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
    while True:
        yield message(text="and so on ")


async def empty_forever(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
    while True:
        yield message(text="")


async def invalid_chunks(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
    yield message(quoted=generation_pb2.QuotedSentence(passage=77, sentence=1))
    yield message(tokens=generation_pb2.TokenChunk(ids=[4_000_000_000]))
    yield FINISHED


async def dying(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
    if request:
        await context.abort(grpc.StatusCode.UNAVAILABLE, "killed")
    yield b""


async def hanging(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
    yield message(text="The ")
    await asyncio.Event().wait()


BEHAVIOURS: tuple[Behaviour, ...] = (
    silent, empty, no_tokens, garbage, endless, empty_forever, invalid_chunks, dying, hanging,
)  # fmt: skip


@contextmanager
def faulty_remote(behaviour: Behaviour, certificate: tuple[bytes, bytes] | None = None) -> Iterator[str]:
    """Serves a behaviour as the Generation service on loopback and yields its address."""

    class Handler(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs only
        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
            return grpc.unary_stream_rpc_method_handler(behaviour)

    credentials = None if certificate is None else grpc.ssl_server_credentials([certificate])
    with serving(lambda server: server.add_generic_rpc_handlers((Handler(),)), credentials) as address:
        yield address


def text_event(text: str, reason: str | None = None) -> bytes:
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


async def http_unpaired_surrogate(body: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + text_event("\\ud800"))


async def http_truncated(body: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + text_event("The ") + chunk(b"data: {"))
    await writer.drain()
    writer.close()


async def http_endless(body: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD)
    while not writer.is_closing():
        writer.write(text_event("and so on "))
        await writer.drain()


async def http_endless_line(body: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + chunk(b"data: "))
    while not writer.is_closing():
        writer.write(chunk(b"x" * 65536))
        await writer.drain()


async def http_comments_forever(body: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD)
    while not writer.is_closing():
        writer.write(chunk(b": still here\n\n"))
        await writer.drain()


HTTP_BEHAVIOURS: tuple[HttpBehaviour, ...] = (
    http_silent, http_refusing, http_empty, http_page, http_garbage, http_unpaired_surrogate, http_truncated,
    http_endless, http_endless_line, http_comments_forever,
)  # fmt: skip


@contextmanager
def faulty_http_remote(behaviour: HttpBehaviour) -> Iterator[HttpServer]:
    """Serves a behaviour over HTTP on loopback."""
    server = HttpServer(behaviour)
    try:
        yield server
    finally:
        server.stop()
