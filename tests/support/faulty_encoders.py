"""Machines that were to encode and do something else, over the real wire."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np
from numpy.typing import NDArray

from edge_rag.api.v1 import encoding_pb2
from edge_rag.offload.encoding.client import Encoders
from tests.support.peer_daemon import LoopThread

Reply = Callable[[bytes, grpc.aio.ServicerContext[Any, Any]], Awaitable[bytes]]
Vectors = NDArray[np.float32]
ANOTHER = np.random.default_rng(7)


async def ended(context: grpc.aio.ServicerContext[Any, Any], code: grpc.StatusCode, details: str) -> bytes:
    """Ends a call badly."""
    await context.abort(code, details)


async def silent(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
    """Takes the request and never answers."""
    await asyncio.get_running_loop().create_future()
    return b""


async def dying(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
    """Breaks off, as a process that is killed."""
    return await ended(context, grpc.StatusCode.UNAVAILABLE, "killed")


async def full(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
    """Has no room."""
    return await ended(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "the embedder queue is full")


async def refusing(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
    """Lets nobody in."""
    return await ended(context, grpc.StatusCode.PERMISSION_DENIED, "needs the role peer")


async def changed(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
    """Has another model since it was asked."""
    return await ended(context, grpc.StatusCode.FAILED_PRECONDITION, "the embedder here is another")


async def garbage(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
    """Sends bytes that are no message."""
    return b"\xff\xfe<html>"


async def empty(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
    """Sends a message without anything in it."""
    return b""


async def huge(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
    """Sends far more than was asked for."""
    return encoding_pb2.EmbedResponse(vectors=bytes(8 << 20)).SerializeToString()


def vectors_of(request: bytes, dimension: int) -> Vectors:
    """Returns vectors of length 1 that no model made."""
    texts = len(encoding_pb2.EmbedRequest.FromString(request).texts)
    made = ANOTHER.standard_normal((texts, dimension))
    made /= np.linalg.norm(made, axis=1, keepdims=True)
    return made.astype(np.float32)


def sending(change: Callable[[Vectors], Any], dimension: int = 384) -> Reply:
    """Returns what sends vectors that no model made, changed."""

    async def send(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        data = np.asarray(change(vectors_of(request, dimension)), dtype="<f4").tobytes()
        return encoding_pb2.EmbedResponse(
            vectors=data, queue_seconds=-1.0, compute_seconds=math.inf
        ).SerializeToString()

    return send


def spoilt(vectors: Vectors) -> Vectors:
    vectors[-1, 7] = math.nan
    return vectors


EMBEDDING: dict[str, Reply] = {
    "silent": silent,
    "dying": dying,
    "full": full,
    "refusing": refusing,
    "changed": changed,
    "garbage": garbage,
    "empty": empty,
    "huge": huge,
    "one too few": sending(lambda vectors: vectors[:-1]),
    "one too many": sending(lambda vectors: np.concatenate([vectors, vectors[:1]])),
    "of another dimension": sending(lambda vectors: vectors[:, :-1]),
    "no numbers": sending(spoilt),
    "of another length": sending(lambda vectors: 2 * vectors),
}
"""What becomes of texts, whose vectors nobody could take for vectors of this model."""

LYING: Reply = sending(lambda vectors: vectors)
"""Sends vectors that look like any, of a model that is not this one."""


def ranking(**given: Any) -> Reply:
    """Returns what sends such ranks."""

    async def rank(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        return encoding_pb2.RerankResponse(**given).SerializeToString()

    return rank


RANKING: dict[str, Reply] = {
    "silent": silent,
    "dying": dying,
    "full": full,
    "changed": changed,
    "garbage": garbage,
    "empty": empty,
    "one passage twice": ranking(ranked=[encoding_pb2.RankedCandidate(passage=0)] * 4),
    "a passage of its own": ranking(ranked=[encoding_pb2.RankedCandidate(passage=4_000_000_000)]),
    "no numbers": ranking(ranked=[encoding_pb2.RankedCandidate(passage=n, score=math.nan) for n in range(4)]),
}


@dataclass
class WaywardEncoders:
    """A machine on loopback.

    Attributes:
        address: Where it is.
        received: What came, by method.
        asked: Set once there is a request with text among it.
    """

    address: str
    received: list[tuple[str, bytes]] = field(default_factory=list)
    asked: threading.Event = field(default_factory=threading.Event)

    def texts(self) -> list[bytes]:
        """Requests that held text."""
        return [request for method, request in self.received if method != "DescribeEncoders"]


@contextmanager
def wayward_encoders(
    models: Encoders, reply: Reply, certificate: tuple[bytes, bytes] | None = None
) -> Iterator[WaywardEncoders]:
    """Serves the Encoding service on loopback.

    Args:
        models: The models it says it has.
        reply: What it answers to all else.
        certificate: Key and certificate, PEM, to serve TLS with.
    """
    thread = LoopThread()
    machine = WaywardEncoders("")

    class Handler(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs only
        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
            method = details.method.rpartition("/")[2]

            async def serve(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
                machine.received.append((method, request))
                if method != "DescribeEncoders":
                    machine.asked.set()
                    return await reply(request, context)
                return encoding_pb2.DescribeEncodersResponse(
                    embedder=models.embedder, dimension=models.dimension, reranker=models.reranker
                ).SerializeToString()

            return grpc.unary_unary_rpc_method_handler(serve)

    async def start() -> tuple[grpc.aio.Server, int]:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((Handler(),))
        if certificate is None:
            port = server.add_insecure_port("127.0.0.1:0")
        else:
            port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([certificate]))
        await server.start()
        return server, port

    server, port = thread.do(start())
    machine.address = f"127.0.0.1:{port}"
    try:
        yield machine
    finally:
        thread.do(server.stop(0))
        thread.stop()
