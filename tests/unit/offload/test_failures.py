"""Whatever a remote does, the client hears one whole answer, within its deadline."""

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
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest

from edge_rag.access.certificates import issue_server, make_authority
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
from edge_rag.generator.model_swap import Installed, ModelSwapper
from edge_rag.offload.generation.generator import OffloadingGenerator, OffloadLimits
from edge_rag.offload.generation.redaction import Redactor
from edge_rag.offload.generation.timeouts import Bounds
from edge_rag.offload.ports import Remote
from edge_rag.offload.remotes.circuit_breaker import Breaker
from edge_rag.offload.remotes.edge_rag import EdgeRagRemote
from edge_rag.offload.remotes.openai import OpenAiRemote
from edge_rag.offload.remotes.tls_trust import Trust
from tests.contract.test_generator_contract import (
    NOT_FOUND,
    TINY,
    Answer,
    answering,
    ask,
    assert_set,
    not_started,
    paged,
    question,
)
from tests.support.faulty_remotes import (
    BEHAVIOURS,
    FINISHED,
    HTTP_BEHAVIOURS,
    Behaviour,
    HttpBehaviour,
    dying,
    endless,
    hanging,
    http_endless,
    http_silent,
    message,
    said,
    silent,
    wayward,
    wayward_http,
)
from tests.support.peer_daemon import HEAD, chunk, event
from tests.support.usage import UsageRecorder

# Remotes are judged by how long they take; a machine that does something else as well makes them late.
pytestmark = pytest.mark.daemon

TIMES = 100 if "EDGE_RAG_SOAK_SECONDS" in os.environ else 2
BOUNDS = Bounds(first_text_s=0.3, stall_s=0.3)
UNHURRIED = Bounds(first_text_s=60, stall_s=60)
PATIENT = Breaker(threshold=10_000)
"""Lets every request through, so that each meets the failure."""

MODES = (OffloadMode.PREFER_REMOTE, OffloadMode.RACE)


@pytest.fixture(scope="module")
def here() -> Iterator[AnswerGenerator]:
    with answering(TINY, paged, SchedulerLimits(4, 96, 16))(64) as generator:
        yield generator


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def borrowing(
    stack: ExitStack,
    local: AnswerGenerator,
    remotes: list[Remote],
    mode: OffloadMode = OffloadMode.PREFER_REMOTE,
    breaker: Breaker = PATIENT,
    redact: tuple[str, ...] = (),
    bounds: Bounds = BOUNDS,
) -> tuple[OffloadingGenerator, UsageRecorder]:
    trail = UsageRecorder()
    generator = OffloadingGenerator(local, remotes, OffloadLimits(mode, bounds, breaker), Redactor(redact), trail)
    stack.callback(generator.close)
    return generator, trail


def hurried(mode: AnswerMode, seconds: float = 20.0) -> GenerationRequest:
    sampling = replace(question().sampling, max_tokens=24)
    return replace(question(mode), deadline=time.monotonic() + seconds, sampling=sampling)


def assert_whole(answer: Answer, mode: AnswerMode, alone: Answer) -> None:
    """The answer came to a good end; quoted and checked ones hold nothing that is not in the passages."""
    assert answer.end.reason in (alone.end.reason, FinishReason.STOP, FinishReason.LENGTH, FinishReason.NOT_FOUND)
    if mode is AnswerMode.QUOTE:
        assert (answer.text, answer.citations) == (alone.text, alone.citations)
    if mode is AnswerMode.CITE and not answer.citations:
        assert answer.text == NOT_FOUND


@pytest.mark.soak
@pytest.mark.parametrize("offload", MODES)
@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda each: each.__name__)
def test_a_wayward_edge_rag_costs_nobody_an_answer(
    stack: ExitStack, here: AnswerGenerator, behaviour: Behaviour, offload: OffloadMode
) -> None:
    address = stack.enter_context(wayward(behaviour))
    generator, trail = borrowing(stack, here, [EdgeRagRemote("odd", address, Trust())], offload)
    for mode in (AnswerMode.QUOTE, AnswerMode.FREE, AnswerMode.CITE):
        request = replace(hurried(mode), priority=question().priority.INTERACTIVE)
        alone = ask(here, request)
        for _ in range(TIMES):
            answer = ask(generator, replace(request, deadline=time.monotonic() + 20))
            assert_whole(answer, mode, alone)
            if behaviour is not endless and behaviour.__name__ != "hanging":
                assert answer.text == alone.text
    assert trail.kinds[AuditEventKind.SENT] > 0


@pytest.mark.soak
@pytest.mark.parametrize("behaviour", HTTP_BEHAVIOURS, ids=lambda each: each.__name__)
def test_a_wayward_http_server_costs_nobody_an_answer(
    stack: ExitStack, here: AnswerGenerator, behaviour: HttpBehaviour
) -> None:
    server = stack.enter_context(wayward_http(behaviour))
    bounds = UNHURRIED if behaviour is http_endless else BOUNDS
    generator, trail = borrowing(stack, here, [OpenAiRemote("odd", server.url, "m", Trust())], bounds=bounds)
    for mode in (AnswerMode.FREE, AnswerMode.CITE):
        alone = ask(here, hurried(mode))
        for _ in range(TIMES):
            answer = ask(generator, hurried(mode))
            assert_whole(answer, mode, alone)
    assert trail.kinds[AuditEventKind.SENT] == 2 * TIMES
    assert trail.kinds[AuditEventKind.TAKEN_OVER] == (0 if behaviour is http_endless else 2 * TIMES)


@pytest.mark.soak
def test_a_machine_that_is_not_there_costs_nobody_an_answer(stack: ExitStack, here: AnswerGenerator) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    remotes: list[Remote] = [
        EdgeRagRemote("a", f"127.0.0.1:{port}", Trust()),
        OpenAiRemote("b", f"http://127.0.0.1:{port}/v1", "m", Trust()),
    ]
    generator, _ = borrowing(stack, here, remotes)
    for mode in AnswerMode:
        for _ in range(TIMES):
            assert ask(generator, hurried(mode)).text == ask(here, hurried(mode)).text


@pytest.mark.soak
@pytest.mark.parametrize("pinned", ["authority", "fingerprint"])
def test_a_wrong_certificate_gets_not_one_byte_of_a_request(
    stack: ExitStack, here: AnswerGenerator, tmp_path: Path, pinned: str
) -> None:
    now, heard = datetime.now(UTC), list[bytes]()

    async def capturing(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
        heard.append(request)
        yield message(text="no")

    shown = issue_server(make_authority("another", now), ["127.0.0.1"], now)
    address = stack.enter_context(wayward(capturing, (shown.key, shown.certificate)))
    (tmp_path / "ca.pem").write_bytes(make_authority("ours", now).certificate)
    trust = Trust(authority=tmp_path / "ca.pem") if pinned == "authority" else Trust(fingerprint="ab" * 32)
    generator, trail = borrowing(stack, here, [EdgeRagRemote("odd", address, trust)])
    for _ in range(TIMES):
        assert ask(generator, hurried(AnswerMode.FREE)).text == ask(here, hurried(AnswerMode.FREE)).text
    assert not heard
    assert trail.kinds[AuditEventKind.TAKEN_OVER] == TIMES


def test_after_failures_a_machine_is_left_alone(stack: ExitStack, here: AnswerGenerator) -> None:
    address = stack.enter_context(wayward(silent))
    remote = EdgeRagRemote("odd", address, Trust())
    generator, trail = borrowing(stack, here, [remote], breaker=Breaker(threshold=2, rest_s=3600))
    for _ in range(5):
        ask(generator, hurried(AnswerMode.FREE))
    assert trail.kinds[AuditEventKind.SENT] == 2
    (known,) = generator.remotes()
    assert (known.breaker, known.failures, known.answers) == ("open", 2, 0)


def test_a_machine_that_lets_a_deadline_pass_has_failed_where_this_box_is_too_busy_to_go_on(
    stack: ExitStack, here: AnswerGenerator
) -> None:
    address = stack.enter_context(wayward(silent))
    remote = EdgeRagRemote("odd", address, Trust())
    generator, trail = borrowing(stack, here, [remote], OffloadMode.OVERFLOW, bounds=UNHURRIED)
    request = replace(question(AnswerMode.FREE, max_tokens=100), deadline=time.monotonic() + 60)
    took = ask(generator, request).end.compute_s  # idle, so written and measured here
    gate, waiting = threading.Event(), [Answer() for _ in range(40)]
    stack.callback(gate.set)
    here.submit(replace(request, passages=()), Answer(lambda event: assert_set(gate)))
    for each in waiting:
        here.submit(request, each)
    answer = Answer()
    generator.submit(replace(request, deadline=time.monotonic() + 5 * took), answer)
    answer.wait()
    gate.set()
    assert isinstance(answer.error, DeadlineExceeded)
    (known,) = generator.remotes()
    assert (known.failures, known.last_problem) == (1, "it was not done by the deadline")
    assert trail.kinds[AuditEventKind.TAKEN_OVER] == 0
    assert {each.wait().end.reason for each in waiting} <= {FinishReason.STOP, FinishReason.LENGTH}


@pytest.mark.parametrize("offload", OffloadMode)
def test_of_a_collection_that_never_leaves_not_one_byte_does(
    stack: ExitStack, here: AnswerGenerator, offload: OffloadMode
) -> None:
    heard = list[bytes]()

    async def capturing(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
        heard.append(request)
        yield message(text="x")

    address = stack.enter_context(wayward(capturing))
    server = stack.enter_context(wayward_http(http_silent))
    remotes: list[Remote] = [EdgeRagRemote("a", address, Trust()), OpenAiRemote("b", server.url, "m", Trust())]
    generator, trail = borrowing(stack, here, remotes, offload, redact=("zzz",))
    for mode in AnswerMode:
        for priority in type(question().priority):
            request = replace(hurried(mode), offload=OffloadRule.NEVER, priority=priority)
            assert ask(generator, request).text == ask(here, request).text
    assert not heard
    assert server.connections == 0
    assert not trail.decisions


def test_what_is_redacted_does_not_leave_and_comes_back_in_the_answer(stack: ExitStack, here: AnswerGenerator) -> None:
    heard = list[bytes]()

    async def echoing(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
        heard.append(request)
        for piece in ("Every <", "<P", "1>", "> hours", "."):
            yield message(text=piece)
        yield FINISHED

    async def echoing_http(body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + said("Every <<P") + said("1>> hours.", "stop") + event("[DONE]") + chunk(b""))

    address = stack.enter_context(wayward(echoing))
    server = stack.enter_context(wayward_http(echoing_http))
    remotes: tuple[Remote, ...] = (
        EdgeRagRemote("a", address, Trust()),
        OpenAiRemote("b", server.url, "m", Trust()),
    )
    for remote in remotes:
        generator, _ = borrowing(stack, here, [remote], redact=("2,[0-9]{3}",), bounds=UNHURRIED)
        request = replace(hurried(AnswerMode.FREE), offload=OffloadRule.REDACTED)
        assert ask(generator, request).text == "Every 2,000 hours."
    for sent in (*heard, *server.received):
        assert b"2,000" not in sent
        assert b"<<P1>>" in sent


def test_where_there_are_no_patterns_what_needs_redaction_stays(stack: ExitStack, here: AnswerGenerator) -> None:
    server = stack.enter_context(wayward_http(http_silent))
    generator, trail = borrowing(stack, here, [OpenAiRemote("b", server.url, "m", Trust())])
    request = replace(hurried(AnswerMode.FREE), offload=OffloadRule.REDACTED)
    assert ask(generator, request).text == ask(here, request).text
    assert server.connections == 0
    assert [decision.kind for decision in trail.decisions] == [AuditEventKind.PLACED]


class Exchanged:
    """A generator whose model was replaced after an answer was begun for the old one, as ``ModelSwapper`` does."""

    def __init__(self, old: AnswerGenerator, new: AnswerGenerator) -> None:
        self._old = old
        self.vocabulary = old.vocabulary
        self.submit, self.stats = new.submit, new.stats

    def dictation(self, request: GenerationRequest, listener: Callable[[GenerationEvent], None]) -> Continuation | None:
        dictation = self._old.dictation(request, listener)
        self._old.engine.close()
        return dictation


def test_an_answer_that_was_begun_for_a_model_that_is_gone_is_begun_anew(
    stack: ExitStack, here: AnswerGenerator
) -> None:
    old = stack.enter_context(answering(TINY, paged, SchedulerLimits(4, 96, 16))(64))
    remote = EdgeRagRemote("odd", stack.enter_context(wayward(dying)), Trust())
    limits = OffloadLimits(OffloadMode.PREFER_REMOTE, BOUNDS, PATIENT)
    generator = OffloadingGenerator(Exchanged(old, here), [remote], limits, Redactor(()), UsageRecorder())
    stack.callback(generator.close)
    assert ask(generator, hurried(AnswerMode.FREE)).text == ask(here, hurried(AnswerMode.FREE)).text


def installed(generator: AnswerGenerator) -> Installed:
    placement = Placement(ModelStage.GENERATOR, Provider.CPU, Provider.CPU, "", Precision.MODEL)
    return Installed(generator, ModelInUse("tiny", "", placement), 16, 4096)


def test_the_generator_that_an_answer_was_begun_for_is_kept_until_it_is_over(
    stack: ExitStack, here: AnswerGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    dies = threading.Event()

    async def says_a_word_and_dies(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
        yield message(text="The ")
        await asyncio.to_thread(dies.wait)
        await context.abort(grpc.StatusCode.UNAVAILABLE, "killed")

    limits = SchedulerLimits(4, 96, 16)
    first, second = (not_started(TINY, paged, limits, 64) for _ in range(2))
    switched = threading.Event()
    # The throttle of the engine that takes over is set once it has taken over.
    monkeypatch.setattr(second.engine, "set_throttle", lambda share: switched.set())
    exchange = ModelSwapper(installed(first))
    stack.callback(exchange.close)
    address = stack.enter_context(wayward(says_a_word_and_dies))
    chosen = OffloadLimits(OffloadMode.PREFER_REMOTE, UNHURRIED, PATIENT)
    generator = OffloadingGenerator(
        exchange, [EdgeRagRemote("odd", address, Trust())], chosen, Redactor(()), UsageRecorder()
    )
    stack.callback(generator.close)
    began = threading.Event()
    answer = Answer(lambda event: began.set())
    generator.submit(hurried(AnswerMode.FREE), answer)
    assert began.wait(60)
    with ThreadPoolExecutor(1) as threads:
        swap = threads.submit(exchange.swap, lambda: installed(second), 60)
        assert switched.wait(60)
        dies.set()
        whole = answer.wait()
        swap.result(60)
    other, _ = borrowing(stack, here, [EdgeRagRemote("odd", address, Trust())], bounds=UNHURRIED)
    assert len(whole.text) > len("The ")
    assert whole.text == ask(other, hurried(AnswerMode.FREE)).text


async def says_a_word_and_lies(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
    """Says two words and claims to have used more than there can be."""
    yield message(text="every day")
    used = rag_pb2.Usage(prompt_tokens=2**31, cached_prompt_tokens=2**31, generated_tokens=2**31, model_steps=2**31)
    yield message(finished=rag_pb2.Finished(reason=rag_pb2.FINISH_REASON_STOP, usage=used))


def test_a_client_is_charged_what_was_said_and_not_what_a_machine_claims(
    stack: ExitStack, here: AnswerGenerator
) -> None:
    address = stack.enter_context(wayward(says_a_word_and_lies))
    generator, books = borrowing(stack, here, [EdgeRagRemote("odd", address, Trust())], bounds=UNHURRIED)
    answer = ask(generator, hurried(AnswerMode.FREE))
    assert answer.text == "every day"
    prompt = ask(here, hurried(AnswerMode.FREE)).end.usage.prompt_tokens
    usage = answer.end.usage
    assert usage.prompt_tokens == prompt
    assert 2 <= usage.generated_tokens <= len("every day")
    assert usage.cached_prompt_tokens <= prompt
    assert usage.model_steps <= prompt + usage.generated_tokens
    assert books.ledger.read() == (
        ClientUsage("test", requests=1, prompt_tokens=prompt, generated_tokens=usage.generated_tokens),
    )


def test_of_an_answer_that_goes_on_here_only_what_others_wrote_is_added_to_the_engines_account(
    stack: ExitStack, here: AnswerGenerator
) -> None:
    address = stack.enter_context(wayward(hanging))
    generator, books = borrowing(stack, here, [EdgeRagRemote("odd", address, Trust())])
    answer = ask(generator, hurried(AnswerMode.FREE))
    (used,) = books.ledger.read()
    assert (used.requests, used.prompt_tokens) == (0, 0)
    assert 1 <= used.generated_tokens < answer.end.usage.generated_tokens
