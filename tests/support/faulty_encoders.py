"""Encoding services that fail or misbehave, over real gRPC."""

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
from edge_rag.offload.ports import EncoderModels
from tests.support.peer_daemon import serving

Reply = Callable[[bytes, grpc.aio.ServicerContext[Any, Any]], Awaitable[bytes]]
Vectors = NDArray[np.float32]
RNG = np.random.default_rng(7)


def aborting(code: grpc.StatusCode, details: str) -> Reply:
    async def abort(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        await context.abort(code, details)

    return abort


dying = aborting(grpc.StatusCode.UNAVAILABLE, "killed")
full = aborting(grpc.StatusCode.RESOURCE_EXHAUSTED, "the embedder queue is full")


async def silent(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
    await asyncio.get_running_loop().create_future()
    return b""


async def garbage(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
    """Sends bytes that are not a message."""
    return b"\xff\xfe<html>"


async def empty(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
    return b""


async def huge(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
    return encoding_pb2.EmbedResponse(vectors=bytes(8 << 20)).SerializeToString()


def vectors_of(request: bytes, dimension: int) -> Vectors:
    texts = len(encoding_pb2.EmbedRequest.FromString(request).texts)
    made = RNG.standard_normal((texts, dimension))
    made /= np.linalg.norm(made, axis=1, keepdims=True)
    return made.astype(np.float32)


def sending(change: Callable[[Vectors], Any], dimension: int = 384) -> Reply:
    async def send(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        data = np.asarray(change(vectors_of(request, dimension)), dtype="<f4").tobytes()
        return encoding_pb2.EmbedResponse(
            vectors=data, queue_seconds=-1.0, compute_seconds=math.inf
        ).SerializeToString()

    return send


def with_nan(vectors: Vectors) -> Vectors:
    vectors[-1, 7] = math.nan
    return vectors


EMBEDDING: dict[str, Reply] = {
    "silent": silent,
    "dying": dying,
    "full": full,
    "refusing": aborting(grpc.StatusCode.PERMISSION_DENIED, "needs the role peer"),
    "changed": aborting(grpc.StatusCode.FAILED_PRECONDITION, "the embedder here is another"),
    "garbage": garbage,
    "empty": empty,
    "huge": huge,
    "one too few": sending(lambda vectors: vectors[:-1]),
    "one too many": sending(lambda vectors: np.concatenate([vectors, vectors[:1]])),
    "of another dimension": sending(lambda vectors: vectors[:, :-1]),
    "no numbers": sending(with_nan),
    "of another length": sending(lambda vectors: 2 * vectors),
}
"""Replies to embedding requests that validation rejects."""

WRONG_MODEL: Reply = sending(lambda vectors: vectors)
"""Sends valid vectors of another model."""


@dataclass
class FaultyEncoders:
    """An Encoding service on loopback."""

    address: str
    received: list[tuple[str, bytes]] = field(default_factory=list)
    received_texts: threading.Event = field(default_factory=threading.Event)

    def texts(self) -> list[bytes]:
        return [request for method, request in self.received if method != "DescribeEncoders"]


@contextmanager
def faulty_encoders(
    models: EncoderModels, reply: Reply, certificate: tuple[bytes, bytes] | None = None
) -> Iterator[FaultyEncoders]:
    """Serves the Encoding service on loopback."""
    server = FaultyEncoders("")

    class Handler(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs only
        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
            method = details.method.rpartition("/")[2]

            async def handle(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
                server.received.append((method, request))
                if method != "DescribeEncoders":
                    server.received_texts.set()
                    return await reply(request, context)
                described = encoding_pb2.DescribeEncodersResponse(embedder=models.embedder, dimension=models.dimension)
                return described.SerializeToString()

            return grpc.unary_unary_rpc_method_handler(handle)

    credentials = None if certificate is None else grpc.ssl_server_credentials([certificate])
    with serving(lambda grpc_server: grpc_server.add_generic_rpc_handlers((Handler(),)), credentials) as address:
        server.address = address
        yield server
