"""Every call is admitted, counted and, where it is refused, recorded once, over any transport."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from edge_rag.access.quotas import QuotaLedger
from edge_rag.core.identity import Identity, Quota, Role
from edge_rag.core.limits.limited_process import ProcessAnswer
from edge_rag.core.monitoring.event import AuditEventKind
from edge_rag.core.query import Regex
from edge_rag.errors import CollectionNotFound, DocumentNotFound, Overloaded, PermissionDenied, Unauthenticated
from edge_rag.generator.constraints.format_check import FormatChecker
from edge_rag.service.authentication import Authenticator, Credentials
from edge_rag.service.call import Admission, CallContext, CallFailed, CallRequest, Operation
from edge_rag.service.codes import Code
from edge_rag.service.lifecycle import Backend, Lifecycle
from edge_rag.service.limits import AnonymousPool, CallLimits, ConcurrencyLimiter, MessageBudget, Timeouts
from edge_rag.service.refusals import RefusalRecorder
from edge_rag.telemetry.activity import Latencies
from edge_rag.telemetry.audit_log import AuditLog
from edge_rag.telemetry.metrics.calls import Metrics

READ = Operation("Read", Role.READER)
WRITE = Operation("Write", Role.WRITER)
REGISTER = Operation("Register", None, anonymous=True)
PROBE = Operation("Probe", None, anonymous=True, probe=True)
REQUEST = CallRequest(Credentials("ipv4:192.0.2.7:5000", tls=True), "chosen-id")


class Fixed(Authenticator):
    """Authenticates every caller as one identity, or none, and refuses anonymous ones."""

    def __init__(self, identity: Identity | None) -> None:
        self._identity = identity

    def authenticate(self, credentials: Credentials) -> Identity:
        if self._identity is None:
            raise Unauthenticated("credentials are needed")
        return self._identity

    def anonymous(self, credentials: Credentials) -> Identity:
        raise PermissionDenied("this needs TLS")


class Context:
    """A call context over parts that tests read."""

    def __init__(
        self,
        quota: Quota = Quota(),  # noqa: B008 - frozen
        collections: frozenset[str] | None = None,
        known: bool = True,
    ) -> None:
        self.audit = AuditLog(100)
        self.registry = CollectorRegistry()
        self.lifecycle = Lifecycle()
        self.lifecycle.open(cast(Backend, object()))
        identity = Identity("reader", frozenset({Role.READER}), collections, quota=quota)
        self.limiter = ConcurrencyLimiter(1)
        self.anonymous = AnonymousPool(2, 1)
        self.calls = CallContext(
            self.lifecycle,
            Fixed(identity if known else None),
            QuotaLedger(),
            CallLimits(self.limiter, self.anonymous, MessageBudget(1 << 20)),
            Timeouts(60, 600),
            Metrics(self.registry, Latencies()),
            RefusalRecorder(self.audit),
        )

        self.displaced = 0

    def admit(self, operation: Operation) -> Admission:
        return self.calls.admit(operation, REQUEST.credentials, "", self._displace)

    def _displace(self) -> None:
        self.displaced += 1

    def count(self, method: str, code: Code) -> float | None:
        return self.registry.get_sample_value("edge_rag_requests_total", {"method": method, "status": code.name})

    def failure(
        self, operation: Operation, request: CallRequest = REQUEST, error: Exception | None = None
    ) -> CallFailed:
        with pytest.raises(CallFailed) as failed, self.calls.handle(operation, request):
            raise error or AssertionError("the call was admitted")
        return failed.value

    def reasons(self) -> list[str]:
        entries = self.audit.entries().entries
        assert all(entry.event.kind is AuditEventKind.REFUSED for entry in entries)
        return [entry.event.reason for entry in entries]


async def test_a_call_keeps_the_id_of_its_client_and_is_counted_once() -> None:
    context = Context()
    with context.calls.handle(READ, REQUEST) as call:
        assert call.request_id == "chosen-id"
        assert 59 < call.deadline - call.started <= 60
    assert context.count("Read", Code.OK) == 1
    assert context.reasons() == []


async def test_processor_time_of_checking_a_format_counts_as_tokens() -> None:
    def refuse(message: bytes) -> ProcessAnswer:
        return ProcessAnswer(b"is too costly", 3.0)

    context = Context(Quota(tokens_per_minute=200))
    checker = FormatChecker(refuse)
    context.lifecycle.open(cast(Backend, SimpleNamespace(formats=checker)))
    with pytest.raises(CallFailed, match="regex: is too costly"), context.calls.handle(READ, REQUEST) as call:
        await call.check_format(Regex("a"))
    assert "200 tokens a minute" in context.failure(READ).message
    checker.close()


async def test_a_call_over_its_quota_is_recorded_once_with_its_id() -> None:
    context = Context(Quota(requests_per_minute=1))
    with context.calls.handle(READ, REQUEST):
        pass
    failed = context.failure(READ)
    assert (failed.code, failed.request_id) == (Code.RESOURCE_EXHAUSTED, "chosen-id")
    assert failed.retry_after_s is not None
    (entry,) = context.audit.entries(failed.request_id).entries
    assert (entry.event.client, entry.event.reason) == ("reader", "Read: the client's quota is used up")
    assert context.count("Read", Code.RESOURCE_EXHAUSTED) == 1


async def test_a_call_without_a_slot_is_recorded_with_the_name_of_its_client() -> None:
    context = Context()
    context.limiter.acquire("another client")
    with pytest.raises(CallFailed) as failed:
        context.admit(READ)
    (entry,) = context.audit.entries(failed.value.request_id).entries
    assert (entry.event.client, entry.event.kind) == ("reader", AuditEventKind.REFUSED)
    assert context.count("Read", Code.RESOURCE_EXHAUSTED) == 1


async def test_slots_of_identified_callers_cannot_be_taken_by_others() -> None:
    context = Context(known=False)
    for _ in range(3):
        context.admit(REGISTER)
    assert context.anonymous.in_use == 1, "one network has one"
    assert context.displaced == 2
    assert context.limiter.in_use == 0
    with pytest.raises(CallFailed) as failed:
        context.admit(READ)
    assert failed.value.code is Code.UNAUTHENTICATED
    (entry,) = context.audit.entries(failed.value.request_id).entries
    assert (entry.event.client, entry.event.reason) == ("ipv4:192.0.2.7", "Read: the client is not authenticated")


async def test_a_caller_without_the_role_is_refused_before_its_request_is_read() -> None:
    context = Context()
    with pytest.raises(CallFailed) as failed:
        context.admit(WRITE)
    assert failed.value.code is Code.PERMISSION_DENIED
    assert context.reasons() == ["Write: the client is not permitted"]
    assert context.limiter.in_use == 0


async def test_an_identified_caller_takes_a_slot_of_its_name_even_where_none_is_needed() -> None:
    context = Context()
    admission = context.admit(REGISTER)
    assert (admission.identity and admission.identity.name, admission.account) == ("reader", "reader")
    assert (context.limiter.in_use, context.anonymous.in_use) == (1, 0)
    admission.release()
    assert context.limiter.in_use == 0


async def test_a_probe_of_an_identified_caller_needs_no_slot() -> None:
    context = Context()
    context.limiter.acquire("another client")
    context.admit(PROBE).release()
    assert context.limiter.in_use == 1


@pytest.mark.parametrize(
    ("operation", "reason"),
    [(WRITE, "Write: the client is not permitted"), (REGISTER, "Register: the client is not permitted")],
)
async def test_a_call_that_is_not_permitted_is_recorded(operation: Operation, reason: str) -> None:
    context = Context()
    assert context.failure(operation).code is Code.PERMISSION_DENIED
    assert context.reasons() == [reason]


async def test_a_draining_daemon_refuses_calls_and_waits_for_those_in_flight() -> None:
    context = Context()
    with context.calls.handle(READ, REQUEST):
        context.lifecycle.drain()
        assert context.failure(READ).code is Code.UNAVAILABLE
    await context.lifecycle.drained()
    assert context.reasons() == ["Read: the daemon is starting or shutting down"]


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (Overloaded("generator", 2.0), Code.RESOURCE_EXHAUSTED, "the generator queue is full"),
        (DocumentNotFound("a"), Code.NOT_FOUND, "a"),
        (ValueError("secret"), Code.INTERNAL, "internal error; the daemon's log has it under request id chosen-id"),
    ],
)
async def test_an_error_of_an_admitted_call_is_no_refusal(error: Any, code: Code, message: str) -> None:
    context = Context()
    failed = context.failure(READ, error=error)
    assert failed.code is code
    assert message in failed.message
    assert context.reasons() == []


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ("Wie oft muss der Filter gewechselt werden?", "Hier ist gerade zu viel los. Bitte in 2 s noch einmal fragen."),
        ("How often must the filter be changed?", "the generator queue is full; retry in 2.0 s"),
        ("", "the generator queue is full; retry in 2.0 s"),
    ],
)
async def test_an_error_of_a_question_is_told_in_its_language_with_the_same_code(question: str, message: str) -> None:
    request = replace(REQUEST, question=question)
    failed = Context().failure(READ, request, error=Overloaded("generator", 2.0))
    assert (failed.message, failed.code, failed.retry_after_s) == (message, Code.RESOURCE_EXHAUSTED, 2.0)


async def test_a_collection_that_is_hidden_is_hidden_in_any_language() -> None:
    context = Context(collections=frozenset({"manuals"}))
    request = replace(REQUEST, question="Wie oft muss der Filter gewechselt werden?")
    failed = context.failure(READ, request, error=CollectionNotFound("secret", ("manuals", "other")))
    assert failed.message == "Eine Sammlung „secret“ gibt es hier nicht. (manuals)"


async def test_an_illegal_request_id_is_replaced_and_not_recorded() -> None:
    context = Context()
    failed = context.failure(READ, CallRequest(REQUEST.credentials, "two words"))
    assert failed.code is Code.INVALID_ARGUMENT
    assert failed.request_id != "two words"
    assert context.reasons() == []


async def test_a_caller_without_access_learns_nothing_of_other_collections() -> None:
    context = Context(collections=frozenset({"manuals"}))
    failed = context.failure(READ, error=CollectionNotFound("secret", ("manuals", "other")))
    assert "other" not in failed.message
