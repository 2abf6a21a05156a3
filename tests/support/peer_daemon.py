"""Serves a generator to peers: the real Generation service over real gRPC, on a thread of its own."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import grpc
from prometheus_client import CollectorRegistry

from edge_rag.access.quotas import QuotaLedger
from edge_rag.access.tokens import TokenFile
from edge_rag.api.v1 import generation_pb2_grpc
from edge_rag.core.limits.request_fields import RequestLimits
from edge_rag.core.query import AnswerMode
from edge_rag.generator.constraints.format_check import FormatChecker
from edge_rag.generator.generator import AnswerGenerator
from edge_rag.generator.model_swap import ModelSwapper
from edge_rag.server.grpc.call import GrpcCalls
from edge_rag.server.grpc.interceptor import AdmissionInterceptor
from edge_rag.server.grpc.peers_service import GenerationService
from edge_rag.server.limits.connection_table import ConnectionLimits
from edge_rag.server.limits.connections import Connections
from edge_rag.service.authentication import Authenticator
from edge_rag.service.call import CallContext
from edge_rag.service.lifecycle import Backend, Lifecycle
from edge_rag.service.limits import AnonymousPool, CallLimits, ConcurrencyLimiter, MessageBudget, Timeouts
from edge_rag.service.refusals import RefusalRecorder
from edge_rag.telemetry.activity import Latencies
from edge_rag.telemetry.audit_log import AuditLog
from edge_rag.telemetry.metrics.calls import Metrics


class LoopThread:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def do(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(60)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()


@contextmanager
def serving(
    register: Callable[[grpc.aio.Server], None],
    credentials: grpc.ServerCredentials | None = None,
    interceptor: AdmissionInterceptor | None = None,
) -> Iterator[str]:
    """Serves over gRPC on loopback, on a thread of its own, and yields the address."""
    thread = LoopThread()

    async def start() -> tuple[grpc.aio.Server, int]:
        server = grpc.aio.server(interceptors=() if interceptor is None else (interceptor,))
        register(server)
        place = "127.0.0.1:0"
        port = server.add_insecure_port(place) if credentials is None else server.add_secure_port(place, credentials)
        await server.start()
        return server, port

    server, port = thread.do(start())
    try:
        yield f"127.0.0.1:{port}"
    finally:
        thread.do(server.stop(0))
        thread.stop()


@contextmanager
def serve_generator(generator: AnswerGenerator, tokens: Path) -> Iterator[str]:
    """Serves a generator's Generation service on loopback and yields its address."""
    unused: dict[str, Any] = dict.fromkeys(Backend.__dataclass_fields__)
    formats = FormatChecker()
    backend = Backend(**unused | {"generator": cast(ModelSwapper, generator), "formats": formats})

    lifecycle = Lifecycle()
    lifecycle.open(backend)
    calls = CallContext(
        lifecycle,
        Authenticator(TokenFile(tokens), cast(Any, None)),
        QuotaLedger(),
        CallLimits(ConcurrencyLimiter(256), AnonymousPool(), MessageBudget(1 << 25)),
        Timeouts(300, 300),
        Metrics(CollectorRegistry(), Latencies()),
        RefusalRecorder(AuditLog(100)),
    )

    def register(server: grpc.aio.Server) -> None:
        service = GenerationService(GrpcCalls(calls), RequestLimits(8192, AnswerMode.QUOTE, 4))
        generation_pb2_grpc.add_GenerationServicer_to_server(service, server)

    with serving(
        register, None, AdmissionInterceptor(calls, 30, 1 << 20, Connections(ConnectionLimits(100, 64)))
    ) as address:
        yield address
    formats.close()


class HttpServer:
    """A minimal HTTP server: reads a request and lets a handler write the raw response."""

    def __init__(self, handle: Callable[[bytes, asyncio.StreamWriter], Coroutine[Any, Any, None]]) -> None:
        self._handle = handle
        self._thread = LoopThread()
        self._server = self._thread.do(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.received: list[bytes] = []
        self.connections = 0
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    def stop(self) -> None:
        async def close() -> None:
            self._server.close()
            for task in self._serving:
                task.cancel()
            await asyncio.gather(*self._serving)

        self._thread.do(close())
        self._thread.stop()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    int(line.split(b":")[1]) for line in head.lower().splitlines() if b"content-length" in line
                )
                body = await reader.readexactly(length)
                self.received.append(head + body)
                await self._handle(body, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(data: str) -> bytes:
    return chunk(f"data: {data}\n\n".encode())
