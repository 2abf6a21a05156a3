"""A gRPC server that does what a test tells it: for what a client must survive and a sound daemon never does."""

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import grpc
from click.testing import CliRunner, Result
from grpc_health.v1 import health_pb2_grpc
from grpc_health.v1.health import HealthServicer

from edge_rag.api.v1 import admin_pb2_grpc, documents_pb2_grpc, rag_pb2, rag_pb2_grpc
from edge_rag.cli.main import main

Handler = Callable[[Any, grpc.ServicerContext], Any]

STREAMED = {"Ask", "StartIngest", "WatchJob", "Backup", "WatchStatus", "ListAuditEvents"}


class ScriptedDaemon:
    """Answers each RPC with the handlers it was given, one a call; the last one stays."""

    def __init__(self) -> None:
        self.address = ""
        self.health = HealthServicer()
        self.calls: dict[str, int] = defaultdict(int)
        self._handlers: dict[str, list[Handler]] = {}
        self._lock = threading.Lock()

    def script(self, method: str, *handlers: Handler) -> None:
        self._handlers[method] = list(handlers)

    def __getattr__(self, method: str) -> Any:
        """Returns what gRPC calls for a method of the services."""
        if not method[0].isupper():
            raise AttributeError(method)

        def stream(request: Any, context: Any) -> Any:
            yield from self._next(method)(request, context)

        def reply(request: Any, context: Any) -> Any:
            return self._next(method)(request, context)

        return stream if method in STREAMED else reply

    def _next(self, method: str) -> Handler:
        with self._lock:
            self.calls[method] += 1
            handlers = self._handlers[method]
            return handlers.pop(0) if len(handlers) > 1 else handlers[0]

    def run(self, *arguments: str, given: str | bytes | None = None) -> Result:
        """Runs a command of the command line against this server."""
        return CliRunner().invoke(main, [*arguments, "--server", self.address], input=given)

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json").stdout)


def start(daemon: ScriptedDaemon, address: str) -> grpc.Server:
    server = grpc.server(ThreadPoolExecutor(8))
    servicer = cast(Any, daemon)
    rag_pb2_grpc.add_RagServicer_to_server(servicer, server)
    documents_pb2_grpc.add_DocumentsServicer_to_server(servicer, server)
    admin_pb2_grpc.add_AdminServicer_to_server(servicer, server)
    health_pb2_grpc.add_HealthServicer_to_server(daemon.health, server)
    port = server.add_insecure_port(address)
    daemon.address = address if address.startswith("unix:") else f"127.0.0.1:{port}"
    server.start()
    return server


def refusing(code: grpc.StatusCode, details: str = "refused", trailers: tuple[tuple[str, str], ...] = ()) -> Handler:
    def handler(_: Any, context: grpc.ServicerContext) -> Any:
        context.set_trailing_metadata(trailers)
        context.abort(code, details)

    return handler


def answering(text: str = "Every 2,000 hours.") -> Handler:
    def handler(request: rag_pb2.AskRequest, _: grpc.ServicerContext) -> Iterator[rag_pb2.AskResponse]:
        yield rag_pb2.AskResponse(passages=rag_pb2.Passages(mode=rag_pb2.ANSWER_MODE_QUOTE))
        half = len(text) // 2
        for piece in (text[:half], text[half:]):
            yield rag_pb2.AskResponse(text=rag_pb2.TextDelta(text=piece))
        yield rag_pb2.AskResponse(
            citation=rag_pb2.Citation(
                document="manual.pdf",
                page=3,
                start=10,
                end=10 + len(text),
                text=text,
                answer_end=len(text),
                section=["Pumps", "Standby pump"],
            )
        )
        yield finished()

    return handler


def finished() -> rag_pb2.AskResponse:
    return rag_pb2.AskResponse(
        finished=rag_pb2.Finished(
            reason=rag_pb2.FINISH_REASON_STOP,
            usage=rag_pb2.Usage(prompt_tokens=90, generated_tokens=7, forced_tokens=5, model_steps=3),
            stages=[
                rag_pb2.StageTime(stage="retriever", queue_seconds=0.25, compute_seconds=0.5),
                rag_pb2.StageTime(stage="generator", queue_seconds=0.0, compute_seconds=1.5),
            ],
            first_token_seconds=0.75,
        )
    )
