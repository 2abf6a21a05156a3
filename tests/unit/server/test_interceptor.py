"""What calls leave behind, over a real server."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

import grpc
import pytest
from prometheus_client import CollectorRegistry

from edge_rag.server.grpc.interceptor import AdmissionInterceptor
from edge_rag.server.lifecycle import Lifecycle
from edge_rag.server.limits.concurrency import ConcurrencyLimiter
from edge_rag.server.limits.connections import Connections
from edge_rag.server.limits.timeouts import Deadlines
from edge_rag.telemetry.latencies import Latencies
from edge_rag.telemetry.metrics.calls import Metrics

ECHO = "/test.Test/Echo"
CALLS = 50


class Echo(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs only
    """Answers every call with its request, twice."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
        async def echo(request: bytes, _: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
            yield request
            yield request

        return grpc.unary_stream_rpc_method_handler(echo)


@pytest.fixture
def places() -> ConcurrencyLimiter:
    return ConcurrencyLimiter(1)


@pytest.fixture
async def address(places: ConcurrencyLimiter) -> AsyncIterator[str]:
    metrics = Metrics(CollectorRegistry(), Latencies())
    turnstile = AdmissionInterceptor(places, Deadlines(60, 60), 60, Lifecycle(), Connections(10), metrics)
    server = grpc.aio.server(interceptors=[turnstile])
    server.add_generic_rpc_handlers((Echo(),))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    yield address
    await server.stop(0)


@pytest.fixture
def without_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def calls_in_memory() -> int:
    return sum(type(each).__name__ == "RPCState" for each in gc.get_objects())


@pytest.mark.usefixtures("without_collections")
@pytest.mark.parametrize("full", [True, False])
async def test_a_call_that_is_over_is_gone_without_a_collection(
    address: str, places: ConcurrencyLimiter, full: bool
) -> None:
    if full:
        places.take("somebody else")
    ended = []
    async with grpc.aio.insecure_channel(address) as channel:
        for _ in range(CALLS):
            call = channel.unary_stream(ECHO, bytes, bytes)(b"heard")
            try:
                assert [each async for each in call] == [b"heard", b"heard"]
            except grpc.aio.AioRpcError as refused:
                assert "grpc-retry-pushback-ms" in dict(cast(Any, refused.trailing_metadata()) or ())
            ended.append(await call.code())
    assert set(ended) == {grpc.StatusCode.RESOURCE_EXHAUSTED if full else grpc.StatusCode.OK}
    assert len(ended) == CALLS
    assert calls_in_memory() < CALLS // 5
