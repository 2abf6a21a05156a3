"""What every call has in common: a caller, the gate, an id, a deadline, errors as status, counts and a log line."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import structlog

from edge_rag.core.identity import Identity, Role
from edge_rag.core.ids import RequestId
from edge_rag.errors import CollectionNotFound, EdgeRagError, PermissionDenied
from edge_rag.server.authentication import Authenticator
from edge_rag.server.grpc import status_codes as status
from edge_rag.server.lifecycle import Backend, Lifecycle
from edge_rag.server.limits.timeouts import Deadlines
from edge_rag.telemetry.metrics.calls import Metrics
from edge_rag.telemetry.tracing import UNTRACED, CallTrace, Traces
from edge_rag.wire import requests as wire

ServicerContext = grpc.aio.ServicerContext[Any, Any]

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Call:
    """One call that was let through.

    Attributes:
        backend: What serves it.
        request_id: Its id.
        identity: Who calls.
        started: When it came, ``time.monotonic()`` seconds.
        deadline: ``time.monotonic()`` seconds.
        trace: Its span.
    """

    backend: Backend
    request_id: RequestId
    identity: Identity
    started: float
    deadline: float
    trace: CallTrace

    def collection(self, given: str) -> str:
        """Returns the name of the collection that a request is about.

        Raises:
            InvalidRequest: It is not a legal name.
            CollectionNotFound: It does not exist for who calls.
        """
        name = wire.parse_collection(given)
        if not self.identity.sees(name):
            raise CollectionNotFound(name, None)
        return name


class CallContext:
    """Lets calls in and sees them out.

    Args:
        gate: Open while the daemon serves.
        doorkeeper: Knows who calls.
        metrics: Counts calls.
        deadlines: How long each call may take.
        traces: Traces calls.
    """

    def __init__(
        self,
        gate: Lifecycle,
        doorkeeper: Authenticator,
        metrics: Metrics,
        deadlines: Deadlines,
        traces: Traces = UNTRACED,
    ) -> None:
        self._gate = gate
        self._doorkeeper = doorkeeper
        self._metrics = metrics
        self._deadlines = deadlines
        self._traces = traces

    @asynccontextmanager
    async def serve(
        self,
        role: Role | None,
        method: str,
        context: ServicerContext,
        request_id: str = "",
        *,
        needs_identity: bool = True,
    ) -> AsyncIterator[Call]:
        """Wraps the body of a call; what it raises reaches the client as the status it stands for.

        Args:
            role: What the caller must be; None where being known is enough.
            method: Name of the RPC, for example ``Ask``.
            context: The call.
            request_id: Id the client gave, may be empty.
            needs_identity: Whether strangers are turned away. They are everywhere but in ``Access.Pair``, by which they
                stop being strangers; it takes what all of them together may ask for in a minute off one quota.
        """
        started = time.monotonic()
        deadline = started + self._deadlines.seconds(method, context.time_remaining())
        call_id = RequestId(uuid.uuid4().hex)
        identity: Identity | None = None
        outcome = grpc.StatusCode.OK
        refusal: tuple[str, tuple[tuple[str, str], ...]] | None = None
        trace = self._traces.call(method, context.invocation_metadata() or ())
        self._metrics.calls.inc()
        try:
            call_id = wire.parse_request_id(request_id, call_id)
            structlog.contextvars.bind_contextvars(
                request_id=call_id
            )  # a call has a task, and so a context, of its own
            identity = (self._doorkeeper.identify if needs_identity else self._doorkeeper.stranger)(context)
            if role is not None and not identity.is_a(role):
                raise PermissionDenied(f"{method} needs the role {role.value}; {identity.name} does not have it")
            with self._inside(identity) as backend:
                await context.send_initial_metadata((("edge-rag-request-id", call_id),))
                yield Call(backend, call_id, identity, started, deadline, trace)
        except CollectionNotFound as error:
            outcome = status.STATUS[CollectionNotFound]
            sees_all = identity is not None and identity.collections is None
            refusal = str(error if sees_all else CollectionNotFound(error.collection, None)), ()
        except EdgeRagError as error:
            outcome, refusal = status.STATUS[type(error)], (str(error), status.trailers(error))
        except (asyncio.CancelledError, GeneratorExit):
            in_time = time.monotonic() < deadline
            outcome = grpc.StatusCode.CANCELLED if in_time else grpc.StatusCode.DEADLINE_EXCEEDED
            raise
        except Exception:
            outcome = grpc.StatusCode.INTERNAL
            log.exception("call failed", method=method, request_id=call_id)
            refusal = f"internal error; the daemon's log has it under request id {call_id}", ()
        finally:
            took = time.monotonic() - started
            self._metrics.calls.dec()
            self._metrics.requests.labels(method, outcome.name).inc()
            self._metrics.latency.labels(method).observe(took)
            trace.end(call_id, outcome.name)
            log.info("call", method=method, request_id=call_id, status=outcome.name, seconds=round(took, 4))
        if refusal is not None:  # counted before the client hears of it
            await context.abort(outcome, *refusal)

    async def drains_within(self, seconds: float) -> bool:
        """Waits so long, or until the daemon drains; returns whether it does."""
        return await self._gate.drains_within(seconds)

    def pay(self, call: Call, tokens: int) -> None:
        """Takes tokens that a call used off its caller's quota."""
        self._doorkeeper.quotas.pay(call.identity, tokens)

    @contextmanager
    def _inside(self, identity: Identity) -> Iterator[Backend]:
        backend = self._gate.enter()
        try:
            self._doorkeeper.quotas.begin(identity)
            try:
                yield backend
            finally:
                self._doorkeeper.quotas.end(identity)
        finally:
            self._gate.leave()
