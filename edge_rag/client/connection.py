"""The connection to a daemon that all calls share."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar, cast

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from edge_rag.api.v1 import (
    access_pb2_grpc,
    admin_pb2_grpc,
    collections_pb2_grpc,
    documents_pb2_grpc,
    rag_pb2_grpc,
)
from edge_rag.client.channel import (
    HealthCall,
    open_channel,
    server_address,
)
from edge_rag.client.credentials import Credentials, credentials_for
from edge_rag.client.failures import CallStatus, ClientError, client_error
from edge_rag.client.retry import RetryPolicy
from edge_rag.client.values import Health

_HEALTH = {
    health_pb2.HealthCheckResponse.SERVING: Health.SERVING,
    health_pb2.HealthCheckResponse.NOT_SERVING: Health.NOT_SERVING,
}

T = TypeVar("T")


class Connection:
    """A connection to one daemon. May be used from several threads at once.

    Args:
        address: HOST:PORT or unix:PATH; None takes EDGE_RAG_SERVER, else 127.0.0.1:7421.
        timeout_s: Deadline of each call with all its repetitions, seconds; None leaves it to the server.
        retry: When a call is repeated.
        credentials: For a server with TLS; None takes what the environment names or ``edge-rag connect`` kept for the
            address, and calls without TLS where there is nothing.

    Raises:
        ClientError: INVALID_ARGUMENT, the address is of neither form, or a file of credentials cannot be read.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        timeout_s: float | None = None,
        retry: RetryPolicy | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self.address = server_address(address)
        self._timeout_s = timeout_s
        self._retry = retry or RetryPolicy()
        self._channel = open_channel(self.address, credentials or credentials_for(self.address))
        self._rag = rag_pb2_grpc.RagStub(self._channel)
        self._documents = documents_pb2_grpc.DocumentsStub(self._channel)
        self._access = access_pb2_grpc.AccessStub(self._channel)
        self._collections = collections_pb2_grpc.CollectionsStub(self._channel)
        self._admin = admin_pb2_grpc.AdminStub(self._channel)
        self._health = health_pb2_grpc.HealthStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Cancels every call under way and closes the connection."""
        self._channel.close()

    def wait_until_serving(self, timeout_s: float) -> None:
        """Waits until the health service says SERVING; a daemon that is not there yet is waited for.

        Raises:
            ClientError: DEADLINE_EXCEEDED, it did not within ``timeout_s`` seconds; or UNIMPLEMENTED.
        """
        deadline = time.monotonic() + timeout_s
        last = "no daemon answers"
        while (left := deadline - time.monotonic()) > 0:
            watch = cast(
                HealthCall, self._health.Watch(health_pb2.HealthCheckRequest(), timeout=left, wait_for_ready=True)
            )
            try:
                for reply in watch:
                    health = _HEALTH.get(reply.status, Health.UNKNOWN)
                    if health is Health.SERVING:
                        return
                    last = f"the daemon is {health.value.replace('_', ' ')}"
            except grpc.RpcError as failure:
                error = client_error(failure, self.address)
                if error.status not in (CallStatus.UNAVAILABLE, CallStatus.DEADLINE_EXCEEDED):
                    raise error from failure
            finally:
                watch.cancel()
        raise ClientError(
            CallStatus.DEADLINE_EXCEEDED,
            f"waited {timeout_s:g} s for {self.address}: {last}",
            advice="The daemon's log says what it is doing",
        )

    def _repeat(self, attempt: Callable[[float | None], T]) -> T:
        deadline = None if self._timeout_s is None else time.monotonic() + self._timeout_s
        waited_s, failures = 0.0, 0
        while True:
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                return attempt(left_s)
            except grpc.FutureCancelledError as failure:
                raise ClientError(CallStatus.CANCELLED, "the call was cancelled") from failure
            except grpc.RpcError as failure:
                error = client_error(failure, self.address)
                failures += 1
                delay_s = self._retry.delay(error, failures, waited_s, random.random())
                if delay_s is None or (left_s is not None and delay_s >= left_s):
                    raise error from failure
            time.sleep(delay_s)
            waited_s += delay_s
