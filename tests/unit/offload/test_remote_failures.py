"""For any failure of a remote, the client gets one complete answer within its deadline."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import grpc
import pytest

from edge_rag.api.v1 import rag_pb2
from edge_rag.core.answer import FinishReason
from edge_rag.core.generation import GenerationEvent, GenerationRequest
from edge_rag.core.monitoring.event import AuditEventKind
from edge_rag.core.monitoring.metrics import ClientUsage
from edge_rag.core.monitoring.status import ModelInUse
from edge_rag.core.placement import ModelStage, OffloadMode, OffloadRule, Placement, Precision, Provider
from edge_rag.core.query import AnswerMode
from edge_rag.engine.scheduling.policy import SchedulerLimits
from edge_rag.errors import DeadlineExceeded
from edge_rag.generator.continuation import Continuation
from edge_rag.generator.generator import AnswerGenerator
from edge_rag.generator.model_swap import InstalledGenerator, ModelSwapper
from edge_rag.offload.generation.generator import OffloadingGenerator, OffloadLimits
from edge_rag.offload.generation.redaction import Redactor
from edge_rag.offload.generation.timeouts import Timeouts
from edge_rag.offload.ports import Remote
from edge_rag.offload.remotes.circuit_breaker import CircuitBreaker
from edge_rag.offload.remotes.edge_rag import EdgeRagRemote
from edge_rag.offload.remotes.openai import OpenAiRemote
from edge_rag.offload.remotes.tls_trust import Trust
from tests.support.faulty_remotes import (
    BEHAVIOURS,
    FINISHED,
    HTTP_BEHAVIOURS,
    Behaviour,
    HttpBehaviour,
    dying,
    endless,
    faulty_http_remote,
    faulty_remote,
    hanging,
    http_endless,
    http_silent,
    message,
    silent,
    text_event,
)
from tests.support.generators import (
    NOT_FOUND,
    TINY,
    RecordedAnswer,
    UsageRecorder,
    answering,
    ask,
    assert_set,
    not_started,
    paged,
    question,
)
from tests.support.peer_daemon import HEAD, chunk, event
from tests.unit.offload.conftest import WrongCertificate

# Timeouts apply to remotes, so other load on the machine would make them late.
pytestmark = pytest.mark.daemon

TIMES = 100 if "EDGE_RAG_SOAK_SECONDS" in os.environ else 2
SHORT_TIMEOUTS = Timeouts(first_token_s=0.3, stall_s=0.3)
LONG_TIMEOUTS = Timeouts(first_token_s=60, stall_s=60)
ALWAYS_CLOSED = CircuitBreaker(threshold=10_000)
"""Allows every request, so that each one meets the failure."""


@pytest.fixture(scope="module")
def local() -> Iterator[AnswerGenerator]:
    with answering(TINY, paged, SchedulerLimits(4, 96, 16))(64) as generator:
        yield generator


def offloading(
    stack: ExitStack,
    local: AnswerGenerator,
    remotes: list[Remote],
    mode: OffloadMode = OffloadMode.PREFER_REMOTE,
    breaker: CircuitBreaker = ALWAYS_CLOSED,
    redact: tuple[str, ...] = (),
    timeouts: Timeouts = SHORT_TIMEOUTS,
) -> tuple[OffloadingGenerator, UsageRecorder]:
    usage = UsageRecorder()
    generator = OffloadingGenerator(local, remotes, OffloadLimits(mode, timeouts, breaker), Redactor(redact), usage)
    stack.callback(generator.close)
    return generator, usage


def short_request(mode: AnswerMode, seconds: float = 20.0) -> GenerationRequest:
    sampling = replace(question().sampling, max_tokens=24)
    return replace(question(mode), deadline=time.monotonic() + seconds, sampling=sampling)


def assert_complete(answer: RecordedAnswer, mode: AnswerMode, expected: RecordedAnswer) -> None:
    """The answer ended successfully; checked ones contain only text of the passages."""
    assert answer.end.reason in (expected.end.reason, FinishReason.STOP, FinishReason.LENGTH, FinishReason.NOT_FOUND)
    if mode is AnswerMode.CITE and not answer.citations:
        assert answer.text == NOT_FOUND


@pytest.mark.soak
@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda each: each.__name__)
def test_a_faulty_edge_rag_remote_never_costs_an_answer(
    stack: ExitStack, local: AnswerGenerator, behaviour: Behaviour
) -> None:
    address = stack.enter_context(faulty_remote(behaviour))
    generator, usage = offloading(stack, local, [EdgeRagRemote("odd", address, Trust())])
    for mode in (AnswerMode.FREE, AnswerMode.CITE):
        request = short_request(mode)
        expected = ask(local, request)
        for _ in range(TIMES):
            answer = ask(generator, replace(request, deadline=time.monotonic() + 20))
            assert_complete(answer, mode, expected)
            if behaviour is not endless and behaviour.__name__ != "hanging":
                assert answer.text == expected.text
    assert usage.kinds[AuditEventKind.SENT] > 0


@pytest.mark.soak
@pytest.mark.parametrize("behaviour", HTTP_BEHAVIOURS, ids=lambda each: each.__name__)
def test_a_faulty_http_remote_never_costs_an_answer(
    stack: ExitStack, local: AnswerGenerator, behaviour: HttpBehaviour
) -> None:
    server = stack.enter_context(faulty_http_remote(behaviour))
    timeouts = LONG_TIMEOUTS if behaviour is http_endless else SHORT_TIMEOUTS
    generator, usage = offloading(stack, local, [OpenAiRemote("odd", server.url, "m", Trust())], timeouts=timeouts)
    for mode in (AnswerMode.FREE, AnswerMode.CITE):
        expected = ask(local, short_request(mode))
        for _ in range(TIMES):
            answer = ask(generator, short_request(mode))
            assert_complete(answer, mode, expected)
    assert usage.kinds[AuditEventKind.SENT] == 2 * TIMES
    assert usage.kinds[AuditEventKind.TAKEN_OVER] == (0 if behaviour is http_endless else 2 * TIMES)


@pytest.mark.soak
def test_an_unreachable_remote_never_costs_an_answer(stack: ExitStack, local: AnswerGenerator) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    remotes: list[Remote] = [
        EdgeRagRemote("a", f"127.0.0.1:{port}", Trust()),
        OpenAiRemote("b", f"http://127.0.0.1:{port}/v1", "m", Trust()),
    ]
    generator, _ = offloading(stack, local, remotes)
    for mode in AnswerMode:
        for _ in range(TIMES):
            assert ask(generator, short_request(mode)).text == ask(local, short_request(mode)).text


def capturing(received: list[bytes]) -> Behaviour:
    async def capture(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
        received.append(request)
        yield message(text="no")

    return capture


@pytest.mark.soak
def test_a_remote_with_a_wrong_certificate_receives_nothing(
    stack: ExitStack, local: AnswerGenerator, wrong_certificate: WrongCertificate
) -> None:
    received = list[bytes]()
    address = stack.enter_context(faulty_remote(capturing(received), wrong_certificate.shown))
    generator, usage = offloading(stack, local, [EdgeRagRemote("odd", address, wrong_certificate.trust)])
    for _ in range(TIMES):
        assert ask(generator, short_request(AnswerMode.FREE)).text == ask(local, short_request(AnswerMode.FREE)).text
    assert not received
    assert usage.kinds[AuditEventKind.TAKEN_OVER] == TIMES


def test_after_failures_the_circuit_breaker_opens(stack: ExitStack, local: AnswerGenerator) -> None:
    address = stack.enter_context(faulty_remote(silent))
    remote = EdgeRagRemote("odd", address, Trust())
    generator, usage = offloading(stack, local, [remote], breaker=CircuitBreaker(threshold=2, base_open_s=3600))
    for _ in range(5):
        ask(generator, short_request(AnswerMode.FREE))
    assert usage.kinds[AuditEventKind.SENT] == 2
    (known,) = generator.remotes()
    assert (known.breaker, known.failures, known.answers) == ("open", 2, 0)


def test_a_remote_that_misses_the_deadline_has_failed_even_without_a_takeover(
    stack: ExitStack, local: AnswerGenerator
) -> None:
    address = stack.enter_context(faulty_remote(silent))
    remote = EdgeRagRemote("odd", address, Trust())
    generator, usage = offloading(stack, local, [remote], OffloadMode.OVERFLOW, timeouts=LONG_TIMEOUTS)
    request = replace(question(AnswerMode.FREE, max_tokens=100), deadline=time.monotonic() + 60)
    took = ask(generator, request).end.compute_s  # idle, so written and measured local
    gate, waiting = threading.Event(), [RecordedAnswer() for _ in range(40)]
    stack.callback(gate.set)
    local.submit(replace(request, passages=()), RecordedAnswer(lambda event: assert_set(gate)))
    for each in waiting:
        local.submit(request, each)
    answer = RecordedAnswer()
    generator.submit(replace(request, deadline=time.monotonic() + 5 * took), answer)
    answer.wait()
    gate.set()
    assert isinstance(answer.error, DeadlineExceeded)
    (known,) = generator.remotes()
    assert (known.failures, known.last_problem) == (1, "the remote did not finish before the deadline")
    assert usage.kinds[AuditEventKind.TAKEN_OVER] == 0
    assert {each.wait().end.reason for each in waiting} <= {FinishReason.STOP, FinishReason.LENGTH}


@pytest.mark.parametrize("offload", OffloadMode)
def test_a_collection_with_rule_never_is_never_sent(
    stack: ExitStack, local: AnswerGenerator, offload: OffloadMode
) -> None:
    received = list[bytes]()
    address = stack.enter_context(faulty_remote(capturing(received)))
    server = stack.enter_context(faulty_http_remote(http_silent))
    remotes: list[Remote] = [EdgeRagRemote("a", address, Trust()), OpenAiRemote("b", server.url, "m", Trust())]
    generator, usage = offloading(stack, local, remotes, offload, redact=("zzz",))
    for mode in AnswerMode:
        for priority in type(question().priority):
            request = replace(short_request(mode), offload=OffloadRule.NEVER, priority=priority)
            assert ask(generator, request).text == ask(local, request).text
    assert not received
    assert server.connections == 0
    assert not usage.events


def test_redacted_values_do_not_leave_and_are_restored_in_the_answer(stack: ExitStack, local: AnswerGenerator) -> None:
    received = list[bytes]()

    async def echoing(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
        received.append(request)
        for piece in ("Every <", "<P", "1>", "> hours", "."):
            yield message(text=piece)
        yield FINISHED

    async def echoing_http(body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + text_event("Every <<P") + text_event("1>> hours.", "stop") + event("[DONE]") + chunk(b""))

    address = stack.enter_context(faulty_remote(echoing))
    server = stack.enter_context(faulty_http_remote(echoing_http))
    remotes: tuple[Remote, ...] = (
        EdgeRagRemote("a", address, Trust()),
        OpenAiRemote("b", server.url, "m", Trust()),
    )
    for remote in remotes:
        generator, _ = offloading(stack, local, [remote], redact=("2,[0-9]{3}",), timeouts=LONG_TIMEOUTS)
        request = replace(short_request(AnswerMode.FREE), offload=OffloadRule.REDACTED)
        assert ask(generator, request).text == "Every 2,000 hours."
    for sent in (*received, *server.received):
        assert b"2,000" not in sent
        assert b"<<P1>>" in sent


def test_without_patterns_a_redacted_collection_stays_local(stack: ExitStack, local: AnswerGenerator) -> None:
    server = stack.enter_context(faulty_http_remote(http_silent))
    generator, usage = offloading(stack, local, [OpenAiRemote("b", server.url, "m", Trust())])
    request = replace(short_request(AnswerMode.FREE), offload=OffloadRule.REDACTED)
    assert ask(generator, request).text == ask(local, request).text
    assert server.connections == 0
    assert [event.kind for event in usage.events] == [AuditEventKind.PLACED]


class Swapped:
    """A generator whose model is swapped after a continuation was opened, as by ``ModelSwapper``."""

    def __init__(self, old: AnswerGenerator, new: AnswerGenerator) -> None:
        self._old = old
        self.vocabulary = old.vocabulary
        self.submit, self.stats = new.submit, new.stats

    def open_continuation(
        self, request: GenerationRequest, listener: Callable[[GenerationEvent], None]
    ) -> Continuation | None:
        open_continuation = self._old.open_continuation(request, listener)
        self._old.engine.close()
        return open_continuation


def test_an_answer_restarts_on_the_new_generator_after_a_swap(stack: ExitStack, local: AnswerGenerator) -> None:
    old = stack.enter_context(answering(TINY, paged, SchedulerLimits(4, 96, 16))(64))
    remote = EdgeRagRemote("odd", stack.enter_context(faulty_remote(dying)), Trust())
    limits = OffloadLimits(OffloadMode.PREFER_REMOTE, SHORT_TIMEOUTS, ALWAYS_CLOSED)
    generator = OffloadingGenerator(Swapped(old, local), [remote], limits, Redactor(()), UsageRecorder())
    stack.callback(generator.close)
    assert ask(generator, short_request(AnswerMode.FREE)).text == ask(local, short_request(AnswerMode.FREE)).text


def as_installed(generator: AnswerGenerator) -> InstalledGenerator:
    placement = Placement(ModelStage.GENERATOR, Provider.CPU, Provider.CPU, "", Precision.MODEL)
    return InstalledGenerator(generator, ModelInUse("tiny", "", placement), 16, 4096)


def test_a_swap_waits_for_open_continuations(
    stack: ExitStack, local: AnswerGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    die = threading.Event()

    async def sends_then_dies(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
        yield message(text="The ")
        await asyncio.to_thread(die.wait)
        await context.abort(grpc.StatusCode.UNAVAILABLE, "killed")

    limits = SchedulerLimits(4, 96, 16)
    first, second = (not_started(TINY, paged, limits, 64) for _ in range(2))
    switched = threading.Event()
    # The swapper sets the throttle of a new engine after the switch.
    monkeypatch.setattr(second.engine, "set_throttle", lambda share: switched.set())
    swapper = ModelSwapper(as_installed(first))
    stack.callback(swapper.close)
    address = stack.enter_context(faulty_remote(sends_then_dies))
    offload_limits = OffloadLimits(OffloadMode.PREFER_REMOTE, LONG_TIMEOUTS, ALWAYS_CLOSED)
    generator = OffloadingGenerator(
        swapper, [EdgeRagRemote("odd", address, Trust())], offload_limits, Redactor(()), UsageRecorder()
    )
    stack.callback(generator.close)
    began = threading.Event()
    answer = RecordedAnswer(lambda event: began.set())
    generator.submit(short_request(AnswerMode.FREE), answer)
    assert began.wait(60)
    with ThreadPoolExecutor(1) as threads:
        swap = threads.submit(swapper.swap, lambda: as_installed(second), 60)
        assert switched.wait(60)
        die.set()
        whole = answer.wait()
        swap.result(60)
    other, _ = offloading(stack, local, [EdgeRagRemote("odd", address, Trust())], timeouts=LONG_TIMEOUTS)
    assert len(whole.text) > len("The ")
    assert whole.text == ask(other, short_request(AnswerMode.FREE)).text


async def sends_inflated_usage(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
    yield message(text="every day")
    used = rag_pb2.Usage(prompt_tokens=2**31, cached_prompt_tokens=2**31, generated_tokens=2**31, model_steps=2**31)
    yield message(finished=rag_pb2.Finished(reason=rag_pb2.FINISH_REASON_STOP, usage=used))


def test_a_client_is_charged_for_received_tokens_and_not_for_reported_ones(
    stack: ExitStack, local: AnswerGenerator
) -> None:
    address = stack.enter_context(faulty_remote(sends_inflated_usage))
    generator, recorder = offloading(stack, local, [EdgeRagRemote("odd", address, Trust())], timeouts=LONG_TIMEOUTS)
    answer = ask(generator, short_request(AnswerMode.FREE))
    assert answer.text == "every day"
    prompt = ask(local, short_request(AnswerMode.FREE)).end.usage.prompt_tokens
    usage = answer.end.usage
    assert usage.prompt_tokens == prompt
    assert 2 <= usage.generated_tokens <= len("every day")
    assert usage.cached_prompt_tokens <= prompt
    assert usage.model_steps <= prompt + usage.generated_tokens
    assert recorder.ledger.read() == (
        ClientUsage("test", requests=1, prompt_tokens=prompt, generated_tokens=usage.generated_tokens),
    )


def test_after_a_takeover_only_the_remote_tokens_are_added_to_the_engines_usage(
    stack: ExitStack, local: AnswerGenerator
) -> None:
    address = stack.enter_context(faulty_remote(hanging))
    generator, recorder = offloading(stack, local, [EdgeRagRemote("odd", address, Trust())])
    answer = ask(generator, short_request(AnswerMode.FREE))
    (used,) = recorder.ledger.read()
    assert (used.requests, used.prompt_tokens) == (0, 0)
    assert 1 <= used.generated_tokens < answer.end.usage.generated_tokens
