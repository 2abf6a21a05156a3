"""What every call has in common: the gate, a request id, a deadline, errors as status, counts and a log line."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import structlog

from edge_rag.core.ids import RequestId
from edge_rag.errors import EdgeRagError
from edge_rag.server import status, wire
from edge_rag.server.gate import Backend, Gate
from edge_rag.telemetry.metrics import Metrics

ServicerContext = grpc.aio.ServicerContext[Any, Any]

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Call:
    """One call that was let through.

    Attributes:
        backend: What serves it.
        request_id: Its id.
        client: Who calls.
        started: When it came, ``time.monotonic()`` seconds.
        deadline: ``time.monotonic()`` seconds.
    """

    backend: Backend
    request_id: RequestId
    client: str
    started: float
    deadline: float


class Calls:
    """Lets calls in and sees them out.

    Args:
        gate: Open while the daemon serves.
        metrics: Counts calls.
        most_seconds: Deadline of a call that brings none, and the latest any call may have.
    """

    def __init__(self, gate: Gate, metrics: Metrics, most_seconds: float) -> None:
        self._gate = gate
        self._metrics = metrics
        self._most_seconds = most_seconds

    @asynccontextmanager
    async def serve(self, method: str, context: ServicerContext, request_id: str = "") -> AsyncIterator[Call]:
        """Wraps the body of a call; what it raises reaches the client as the status it stands for.

        Args:
            method: Name of the RPC, for example ``Ask``.
            context: The call.
            request_id: Id the client gave, may be empty.
        """
        started = time.monotonic()
        identity = RequestId(uuid.uuid4().hex)
        outcome = grpc.StatusCode.OK
        refusal: tuple[str, tuple[tuple[str, str], ...]] | None = None
        self._metrics.calls.inc()
        try:
            identity = wire.request_id(request_id, identity)
            backend = self._gate.enter()
            try:
                await context.send_initial_metadata((("edge-rag-request-id", identity),))
                yield Call(backend, identity, _client(context), started, self._deadline(started, context))
            finally:
                self._gate.leave()
        except EdgeRagError as error:
            outcome, refusal = status.STATUS[type(error)], (str(error), status.trailers(error))
        except (asyncio.CancelledError, GeneratorExit):
            outcome = grpc.StatusCode.CANCELLED
            raise
        except Exception:
            outcome = grpc.StatusCode.INTERNAL
            log.exception("call failed", method=method, request_id=identity)
            refusal = f"internal error; the daemon's log has it under request id {identity}", ()
        finally:
            took = time.monotonic() - started
            self._metrics.calls.dec()
            self._metrics.requests.labels(method, outcome.name).inc()
            self._metrics.latency.labels(method).observe(took)
            log.info("call", method=method, request_id=identity, status=outcome.name, seconds=round(took, 4))
        if refusal is not None:  # counted before the client hears of it
            await context.abort(outcome, *refusal)

    def _deadline(self, started: float, context: ServicerContext) -> float:
        remaining = context.time_remaining()
        return started + min(self._most_seconds, remaining if remaining is not None else self._most_seconds)


def _client(context: ServicerContext) -> str:
    peer = context.peer()
    return peer.rsplit(":", 1)[0] if peer.startswith(("ipv4:", "ipv6:")) else peer
