"""Calls over a real server leave no garbage, and refused ones an audit event."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

import grpc
import pytest
from prometheus_client import CollectorRegistry

from edge_rag.access.quotas import QuotaLedger
from edge_rag.core.monitoring.event import AuditEventKind
from edge_rag.server.grpc.call import REQUEST_ID
from edge_rag.server.grpc.interceptor import AdmissionInterceptor
from edge_rag.server.limits.connection_table import ConnectionLimits
from edge_rag.server.limits.connections import Connections
from edge_rag.service.call import CallContext
from edge_rag.service.lifecycle import Lifecycle
from edge_rag.service.limits import ConcurrencyLimiter, Timeouts
from edge_rag.service.refusals import RefusalRecorder
from edge_rag.telemetry.activity import Latencies
from edge_rag.telemetry.audit_log import AuditLog
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
def limiter() -> ConcurrencyLimiter:
    return ConcurrencyLimiter(1)


@pytest.fixture
def audit() -> AuditLog:
    return AuditLog(2 * CALLS)


@pytest.fixture
async def address(limiter: ConcurrencyLimiter, audit: AuditLog) -> AsyncIterator[str]:
    metrics = Metrics(CollectorRegistry(), Latencies())
    calls = CallContext(
        Lifecycle(), cast(Any, None), QuotaLedger(), limiter, Timeouts(60, 60), metrics, RefusalRecorder(audit)
    )
    interceptor = AdmissionInterceptor(calls, 60, frozenset(), Connections(ConnectionLimits(100, 10)))
    server = grpc.aio.server(interceptors=[interceptor])
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
async def test_an_ended_call_is_freed_without_a_garbage_collection(
    address: str, limiter: ConcurrencyLimiter, full: bool
) -> None:
    if full:
        limiter.acquire("another client")
    ended = []
    async with grpc.aio.insecure_channel(address) as channel:
        for _ in range(CALLS):
            call = channel.unary_stream(ECHO, bytes, bytes)(b"payload")
            try:
                assert [each async for each in call] == [b"payload", b"payload"]
            except grpc.aio.AioRpcError as refused:
                assert "grpc-retry-pushback-ms" in dict(cast(Any, refused.trailing_metadata()) or ())
            ended.append(await call.code())
    assert set(ended) == {grpc.StatusCode.RESOURCE_EXHAUSTED if full else grpc.StatusCode.OK}
    assert len(ended) == CALLS
    assert calls_in_memory() < CALLS // 5


async def test_a_refused_call_gets_a_request_id_that_the_audit_log_knows(
    address: str, limiter: ConcurrencyLimiter, audit: AuditLog
) -> None:
    limiter.acquire("another client")
    async with grpc.aio.insecure_channel(address) as channel:
        for given in (None, "my-request", "not legal"):
            metadata = () if given is None else ((REQUEST_ID, given),)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await channel.unary_stream(ECHO, bytes, bytes)(b"payload", metadata=metadata).read()
            request_id = dict(cast(Any, refused.value.trailing_metadata()))[REQUEST_ID]
            assert (request_id == given) is (given == "my-request")
            (entry,) = audit.entries(request_id).entries
            assert entry.event.kind is AuditEventKind.REFUSED
            assert entry.event.client == "ipv4:127.0.0.1"
            assert entry.event.reason == "Echo: the limit of concurrent calls is reached"
            assert entry.event.numbers["retry_after_s"] > 0
