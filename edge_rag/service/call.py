"""The call context: what every call passes through, over any transport.

Identity, roles, quotas, admission, deadlines, audit events of refusals, metrics, traces and the log line are applied
here and nowhere else. A transport parses a request, opens a call with ``CallContext.handle``, passes core values to an
operation of this room, and reports ``CallFailed``.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Final, ParamSpec, TypeVar

import structlog

from edge_rag.access.quotas import QuotaLedger
from edge_rag.core.address import network_of_peer
from edge_rag.core.answer import Finished, Usage
from edge_rag.core.identity import Identity, Role
from edge_rag.core.ids import RequestId, is_request_id
from edge_rag.core.limits.asker import Asker
from edge_rag.core.limits.request_fields import RequestLimits, parse_request_id
from edge_rag.core.limits.thread_shares import ThreadShares
from edge_rag.core.query import AnswerFormat
from edge_rag.errors import (
    AccessError,
    CollectionNotFound,
    EdgeRagError,
    InvalidRequest,
    NotReady,
    Overloaded,
    PermissionDenied,
    Unauthenticated,
    UndecodableMessage,
)
from edge_rag.generator.messages import AUTO, error_message
from edge_rag.service.authentication import Authenticator, Credentials
from edge_rag.service.codes import CODES, Code
from edge_rag.service.lifecycle import Backend, Lifecycle
from edge_rag.service.limits import CallLimits, Timeouts
from edge_rag.service.refusals import RefusalRecorder
from edge_rag.telemetry.metrics.calls import UNTRACED, CallTrace, Metrics, Traces

log = structlog.get_logger()
P = ParamSpec("P")
R = TypeVar("R")

TOKENS_PER_CPU_SECOND: Final = 100
"""Tokens that a second of processor time outside the generator counts as in quotas: about what a small model
generates in it.
"""

STAGES_FIRST_S: Final = 0.5
"""How much longer a call may take than its stages, seconds; their errors say more precisely where the time went."""

IDENTIFIED_REFUSALS: Final = (Code.PERMISSION_DENIED, Code.RESOURCE_EXHAUSTED)
"""Why a call whose caller was identified is refused at admission."""

_SCHEME: Final = "bearer "


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of the daemon.

    Attributes:
        role: The role that it needs; None if any authenticated caller may use it.
        other_role: Another role that suffices; None for none.
        probe: Whether it is a health check; identified callers need no slot for it.
    """

    name: str
    role: Role | None
    long: bool = False
    anonymous: bool = False
    probe: bool = False
    other_role: Role | None = None

    @property
    def roles(self) -> tuple[Role, ...]:
        return tuple(role for role in (self.role, self.other_role) if role is not None)


@dataclass(frozen=True, slots=True)
class CallRequest:
    """A call as its transport received it.

    Attributes:
        request_id: Id that the client chose; empty for none. Validated in ``CallContext.handle``.
        timeout_s: Remaining time that the client allows, seconds; None for no bound.
        identity: The caller, if ``CallContext.admit`` has identified it for this operation.
        question: The question, if it asks one: errors are answered in its language.
    """

    credentials: Credentials
    request_id: str = ""
    timeout_s: float | None = None
    metadata: Sequence[tuple[str, str | bytes]] = ()
    identity: Identity | None = None
    question: str = ""


@dataclass(frozen=True, slots=True)
class Admission:
    """The slot of a call that ``CallContext.admit`` let in.

    Attributes:
        identity: The caller; None if it is not identified.
        account: Whose share of the message budget its messages take; None if they need none.
    """

    identity: Identity | None
    account: str | None
    release: Callable[[], None]
    keep: Callable[[], None]


class CallFailed(Exception):
    """The failure of a call, as a transport reports it. Not part of the error tree: it reports one of those errors.

    Attributes:
        retry_after_s: When a retry is likely to succeed, seconds; None if unknown.
        reason: Class of the error, for example ``CollectionNotFound``; empty for an internal one.
        field: The unusable field of the request; None for other errors.
    """

    def __init__(
        self,
        code: Code,
        message: str,
        request_id: RequestId,
        retry_after_s: float | None = None,
        reason: str = "",
        field: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.request_id = request_id
        self.retry_after_s = retry_after_s
        self.reason = reason
        self.field = field

    @classmethod
    def of(cls, error: EdgeRagError, request_id: RequestId, message: str) -> CallFailed:
        field = error.field if isinstance(error, InvalidRequest) else None
        return cls(CODES[type(error)], message, request_id, retry_after_s(error), type(error).__name__, field)


@dataclass(frozen=True, slots=True)
class Call:
    """An admitted call.

    Attributes:
        started: When it arrived, ``time.monotonic()`` seconds.
        deadline: ``time.monotonic()`` seconds.
    """

    backend: Backend
    request_id: RequestId
    identity: Identity
    peer: str
    started: float
    deadline: float
    trace: CallTrace
    context: CallContext

    def check_collection(self, name: str) -> None:
        if not self.identity.can_see(name):
            raise CollectionNotFound(name, None)

    def asker(self, limits: RequestLimits) -> Asker:
        return Asker(self.request_id, self.identity, self.deadline, limits)

    def charge(self, tokens: int) -> None:
        self.context.quotas.charge(self.identity, tokens)

    async def check_format(self, form: AnswerFormat | None) -> None:
        if form is not None:
            await self.backend.formats.check(form, self.identity.name, self._charge_seconds)

    def _charge_seconds(self, seconds: float) -> None:
        self.charge(ceil(seconds * TOKENS_PER_CPU_SECOND))

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs a blocking function on one of the caller's share of threads."""
        return await self.context.threads.run(self.identity.name, function, *args, **kwargs)

    async def charge_texts(self, texts: Sequence[str]) -> None:
        if self.identity.quota.tokens_per_minute is not None:
            self.charge(await self.run(self.backend.encoders.count_tokens, texts))

    @asynccontextmanager
    async def charged(self, texts: list[str]) -> AsyncIterator[None]:
        """Charges texts when the block ends, however it ends, unless a full queue refused them."""
        try:
            yield
        except Overloaded:
            texts.clear()
            raise
        finally:
            if texts:
                await self.charge_texts(texts)

    def charge_usage(self, usage: Usage) -> None:
        self.charge(usage.prompt_tokens + usage.generated_tokens)

    def answered(self, finished: Finished) -> None:
        self.context.metrics.answered(finished, time.monotonic() - self.started)
        self.charge_usage(finished.usage)


class CallContext:
    """Admits calls and accounts for them. Used from one event loop.

    Args:
        message_language: Language of the errors of questions: an ISO 639-1 code, or "auto" for that of the question.
    """

    def __init__(
        self,
        lifecycle: Lifecycle,
        authentication: Authenticator,
        quotas: QuotaLedger,
        limits: CallLimits,
        timeouts: Timeouts,
        metrics: Metrics,
        refusals: RefusalRecorder,
        traces: Traces = UNTRACED,
        message_language: str = AUTO,
    ) -> None:
        self.lifecycle = lifecycle
        self.authentication = authentication
        self.quotas = quotas
        self.timeouts = timeouts
        self.messages = limits.messages
        self.threads = ThreadShares()
        self.metrics = metrics
        self._limits = limits
        self._refusals = refusals
        self._traces = traces
        self._message_language = message_language

    def admit(
        self, operation: Operation, credentials: Credentials, request_id: str, displace: Callable[[], None]
    ) -> Admission:
        """Identifies the caller of a call and takes a slot, before its request is read; pair with the slot's release.

        An identified caller takes one of the slots for concurrent calls, counted by its name. Others, who may use
        anonymous operations only, take one of a small pool, counted by their network. A refusal costs one count, one
        audit event at a limited rate and no reference cycle.
        """
        client = credentials.address
        try:
            identity = self._known(operation, credentials)
            if identity is None:
                slot = self._limits.anonymous.acquire(network_of_peer(credentials.peer), displace)
                return Admission(None, None, slot.release, slot.keep)
            client = name = identity.name
            if operation.probe:
                return Admission(identity, name if credentials.tls else None, _nothing, _nothing)
            self._limits.calls.acquire(name)
            return Admission(identity, name, partial(self._limits.calls.release, name), _nothing)
        except EdgeRagError as refusal:
            # No variable of this frame may hold the error: its traceback holds the frame.
            raise self.refused(
                operation,
                client,
                request_id,
                NotReady("the daemon is shutting down")
                if self.lifecycle.draining and isinstance(refusal, Overloaded)
                else refusal,
            ) from None

    def admit_without_slot(self, operation: Operation, credentials: Credentials) -> Identity | None:
        """Counts a finished call of an anonymous operation; returns its caller, or None for an unknown one."""
        self.metrics.requests.labels(operation.name, Code.OK.name).inc()
        return self._known(operation, credentials)

    def refused(self, operation: Operation, client: str, request_id: str, error: EdgeRagError) -> CallFailed:
        """Counts and records the refusal of a call that did not reach ``handle``; returns the transport's reply."""
        call_id = RequestId(request_id) if is_request_id(request_id) else _new_request_id()
        failed = CallFailed.of(error, call_id, str(error))
        self.metrics.requests.labels(operation.name, failed.code.name).inc()
        self._record(operation, failed.request_id, client, error)
        return failed

    @contextmanager
    def handle(self, operation: Operation, request: CallRequest) -> Iterator[Call]:
        """Runs the body of a call: admits it, and counts, traces and logs its end."""
        started = time.monotonic()
        deadline = started + self.timeouts.seconds(operation.long, request.timeout_s)
        call_id = _new_request_id()
        identity: Identity | None = None
        admitted = False
        code = Code.OK
        failure: CallFailed | None = None
        trace = self._traces.call(operation.name, request.metadata)
        self.metrics.calls.inc()
        try:
            if request.request_id:
                call_id = parse_request_id(request.request_id)
            # Each call runs in a task, and therefore a context, of its own.
            structlog.contextvars.bind_contextvars(request_id=call_id)
            identity = self._identify(operation, request)
            with self._admitted(identity) as backend:
                admitted = True
                peer = request.credentials.peer
                yield Call(backend, call_id, identity, peer, started, deadline, trace, self)
        except CollectionNotFound as error:
            failure = self._failure(_as_seen_by(identity, error), call_id, request)
        except EdgeRagError as error:
            failure = self._failure(error, call_id, request)
            if isinstance(error, UndecodableMessage) or not (admitted or isinstance(error, InvalidRequest)):
                client = request.credentials.address if identity is None else identity.name
                self._record(operation, call_id, client, error)
        except (asyncio.CancelledError, GeneratorExit):
            code = Code.CANCELLED if time.monotonic() < deadline else Code.DEADLINE_EXCEEDED
            raise
        except Exception:
            log.exception("call failed", method=operation.name, request_id=call_id)
            message = f"internal error; the daemon's log has it under request id {call_id}"
            failure = CallFailed(Code.INTERNAL, message, call_id)
        finally:
            code = code if failure is None else failure.code
            seconds = time.monotonic() - started
            self.metrics.calls.dec()
            self.metrics.requests.labels(operation.name, code.name).inc()
            self.metrics.latency.labels(operation.name).observe(seconds)
            trace.end(call_id, code.name)
            log.info("call", method=operation.name, request_id=call_id, status=code.name, seconds=round(seconds, 4))
        if failure is not None:  # after the call is counted
            try:
                raise failure
            finally:
                failure = None  # its traceback holds this frame, which must not hold it

    def _failure(self, error: EdgeRagError, call_id: RequestId, request: CallRequest) -> CallFailed:
        asked = request.question
        return CallFailed.of(
            error, call_id, error_message(error, asked, self._message_language) if asked else str(error)
        )

    def _record(self, operation: Operation, call_id: RequestId, client: str, error: EdgeRagError) -> None:
        recorded = self._refusals.record(operation.name, call_id, client, error)
        if recorded and isinstance(error, UndecodableMessage):
            log.warning("a message could not be decoded", method=operation.name, request_id=call_id, client=client)

    def _known(self, operation: Operation, credentials: Credentials) -> Identity | None:
        """Returns the caller's identity, which may use the operation; None for an unknown one that needs none."""
        try:
            identity = self.authentication.authenticate(credentials)
        except (Unauthenticated, PermissionDenied, AccessError):
            if operation.anonymous:
                return None
            raise
        if operation.roles and not any(map(identity.is_a, operation.roles)):
            needed = " or ".join(role.value for role in operation.roles)
            raise PermissionDenied(f"{operation.name} needs the role {needed}; {identity.name} does not have it")
        return identity

    def _identify(self, operation: Operation, request: CallRequest) -> Identity:
        if operation.anonymous:
            return self.authentication.anonymous(request.credentials)
        identity = request.identity or self._known(operation, request.credentials)
        assert identity is not None, "only anonymous operations need no identity"
        return identity

    @contextmanager
    def _admitted(self, identity: Identity) -> Iterator[Backend]:
        backend = self.lifecycle.acquire()
        try:
            self.quotas.acquire(identity)
            try:
                yield backend
            finally:
                self.quotas.release(identity)
        finally:
            self.lifecycle.release()


def retry_after_s(error: EdgeRagError) -> float | None:
    """Returns when a retry is likely to succeed, seconds; None if unknown."""
    return error.retry_after_s if isinstance(error, Overloaded) else None


def bearer_token(authorization: str | None) -> str | None:
    """Returns the token of metadata or a header `authorization: Bearer TOKEN`; None without one."""
    if authorization is None:
        return None
    scheme = authorization[: len(_SCHEME)]
    return authorization[len(_SCHEME) :].strip() if scheme.lower() == _SCHEME else authorization


def _nothing() -> None:
    pass


def _as_seen_by(identity: Identity | None, error: CollectionNotFound) -> CollectionNotFound:
    if identity is not None and identity.visible_collections is None:
        return error
    allowed = frozenset() if identity is None else identity.visible_collections or frozenset()
    return CollectionNotFound(error.collection, None, tuple(sorted(allowed - {error.collection})))


def _new_request_id() -> RequestId:
    return RequestId(uuid.uuid4().hex)
