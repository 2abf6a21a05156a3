"""Whatever a machine does that was to encode, all is encoded as this box would have done it, in time."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from numpy.typing import NDArray

from edge_rag.access.certificates import issue_server, make_authority
from edge_rag.api.v1 import encoding_pb2
from edge_rag.core.documents.collection import CollectionSettings
from edge_rag.core.documents.document import Upload
from edge_rag.core.ids import RequestId
from edge_rag.core.monitoring.event import AuditEventKind
from edge_rag.core.passage import RetrievalRequest, Retrieved
from edge_rag.core.placement import OffloadMode, OffloadRule
from edge_rag.core.query import Priority, Question, RequestContext
from edge_rag.errors import InferenceFailed
from edge_rag.offload.encoding.client import Encoders
from edge_rag.offload.encoding.embedder import OffloadingEmbedding
from edge_rag.offload.encoding.routing import Work
from edge_rag.offload.remotes.circuit_breaker import Breaker
from edge_rag.offload.remotes.tls_trust import Trust
from edge_rag.reranker.max_sim import METHOD, MaxSimReranker
from edge_rag.retriever.open_directory import open_data_directory
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from tests.contract.test_reranker_contract import QUESTIONS, ask
from tests.support.borrowing_encoders import EMBEDDER, PATIENT, Borrower, borrowing
from tests.support.faulty_encoders import (
    EMBEDDING,
    LYING,
    RANKING,
    Reply,
    WaywardEncoders,
    dying,
    full,
    silent,
    wayward_encoders,
)
from tests.unit.retriever.hashed_words import HashedWords

# Remotes are judged by how long they take; a machine that does something else as well makes them late.
pytestmark = pytest.mark.daemon

TIMES = 100 if "EDGE_RAG_SOAK_SECONDS" in os.environ else 2
TEXTS = tuple(f"Pump {number} is greased every {number} hours." for number in range(150))
RANKED = tuple(ask(question, limit=2 + number % 3) for number, question in enumerate(QUESTIONS[:3]))
MODES = (OffloadMode.PREFER_REMOTE, OffloadMode.RACE)
BULK_MODES = (OffloadMode.PREFER_REMOTE, OffloadMode.OVERFLOW)


@pytest.fixture(scope="module")
def own() -> TextEncoder:
    return TextEncoder.open(EMBEDDER)


@pytest.fixture(scope="module")
def vectors(own: TextEncoder) -> NDArray[np.float32]:
    return own.embed(TEXTS)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def models(own: TextEncoder, **other: Any) -> Encoders:
    return replace(Encoders(own.name, own.dimension, f"{METHOD} {own.name}"), **other)


def beside(
    stack: ExitStack,
    own: TextEncoder,
    reply: Reply,
    mode: OffloadMode = OffloadMode.PREFER_REMOTE,
    breaker: Breaker = PATIENT,
    longest_s: float = 0.3,
    **other: Any,
) -> tuple[Borrower, WaywardEncoders]:
    machine = stack.enter_context(wayward_encoders(models(own, **other), reply))
    borrower = borrowing(own, MaxSimReranker(own), [machine.address], mode, longest_s=longest_s, breaker=breaker)
    return stack.enter_context(borrower), machine


def hurried(seconds: float = 20.0, priority: Priority | None = Priority.INTERACTIVE) -> RequestContext:
    return RequestContext(RequestId("r"), "test", priority, time.monotonic() + seconds)


@pytest.mark.soak
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("reply", EMBEDDING)
def test_a_wayward_machine_costs_nobody_a_vector(
    stack: ExitStack, own: TextEncoder, vectors: NDArray[np.float32], reply: str, mode: OffloadMode
) -> None:
    borrower, machine = beside(stack, own, EMBEDDING[reply], mode)
    for _ in range(TIMES):
        np.testing.assert_array_equal(borrower.questions(QUESTIONS, context=hurried()), own.embed_questions(QUESTIONS))
    bulk, machine = beside(stack, own, EMBEDDING[reply], OffloadMode.PREFER_REMOTE)
    np.testing.assert_array_equal(bulk.passages(TEXTS), vectors)
    assert machine.texts()
    assert bulk.desks["m0"].embedded_texts == 0


@pytest.mark.soak
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("reply", RANKING)
def test_a_wayward_machine_costs_nobody_a_rank(
    stack: ExitStack, own: TextEncoder, reply: str, mode: OffloadMode
) -> None:
    expected = MaxSimReranker(own).rerank(RANKED)
    borrower, machine = beside(stack, own, RANKING[reply], mode)
    for _ in range(TIMES):
        assert borrower.rank(RANKED, context=hurried()) == expected
    assert machine.texts()
    assert borrower.desks["m0"].reranked == 0


@pytest.mark.parametrize("mode", BULK_MODES)
def test_what_is_stored_is_never_of_another_model_even_where_it_looks_like_any(
    stack: ExitStack, own: TextEncoder, vectors: NDArray[np.float32], mode: OffloadMode
) -> None:
    borrower, machine = beside(stack, own, LYING, mode, longest_s=60)
    np.testing.assert_array_equal(borrower.passages(TEXTS, here=slowly(own, machine)), vectors)
    assert machine.texts()
    told = [each.reason for each in borrower.trail.decisions if each.kind is AuditEventKind.BREAKER]
    assert any("is not the one that its model gives here" in reason for reason in told)
    before = len(machine.texts())
    np.testing.assert_array_equal(borrower.passages(TEXTS), vectors)
    assert len(machine.texts()) == before, "it is asked no more for now"


def slowly(own: TextEncoder, machine: WaywardEncoders) -> Callable[[Sequence[str]], NDArray[np.float32]]:
    """Embeds here, not before the other machine was asked."""

    def embed(texts: Sequence[str]) -> NDArray[np.float32]:
        assert machine.asked.wait(30)
        return own.embed(texts)

    return embed


@pytest.mark.parametrize("other", [{"embedder": "minilm-l6-0123456789abcdef"}, {"dimension": 383}, {"embedder": ""}])
def test_a_machine_with_another_embedder_is_not_sent_one_text_and_that_is_said_aloud(
    stack: ExitStack, own: TextEncoder, vectors: NDArray[np.float32], other: dict[str, Any]
) -> None:
    borrower, machine = beside(stack, own, LYING, **other)
    np.testing.assert_array_equal(borrower.passages(TEXTS), vectors)
    np.testing.assert_array_equal(borrower.questions(QUESTIONS), own.embed_questions(QUESTIONS))
    assert not machine.texts()
    desk = borrower.desks["m0"]
    assert "its embedder is" in desk.last_problem
    assert own.name in desk.last_problem
    assert (desk.failures, desk.breaker.failures) == (0, 0)
    told = [each.reason for each in borrower.trail.decisions if each.kind is AuditEventKind.BREAKER]
    assert any(reason.startswith("m0 is not asked for passages: its embedder is") for reason in told)


def test_a_machine_with_another_reranker_is_not_sent_one_passage(stack: ExitStack, own: TextEncoder) -> None:
    borrower, machine = beside(stack, own, dying, reranker=f"max-sim.0 {own.name}")
    assert borrower.rank(RANKED) == MaxSimReranker(own).rerank(RANKED)
    assert not machine.texts()
    assert "its reranker is max-sim.0" in borrower.desks["m0"].last_problem


def test_which_models_a_machine_has_is_known_before_anything_is_to_be_done(stack: ExitStack, own: TextEncoder) -> None:
    borrower, machine = beside(stack, own, LYING, embedder="another")
    borrower.loan.introduce()
    borrower.trail.wait_for(2)
    assert {each.kind for each in borrower.trail.decisions} == {AuditEventKind.BREAKER}
    assert {method for method, _ in machine.received} == {"DescribeEncoders"}


@pytest.mark.parametrize("mode", OffloadMode)
@pytest.mark.parametrize("rule", [OffloadRule.NEVER, OffloadRule.REDACTED])
def test_of_a_collection_that_never_leaves_as_it_is_not_one_byte_does(
    stack: ExitStack, own: TextEncoder, vectors: NDArray[np.float32], rule: OffloadRule, mode: OffloadMode
) -> None:
    borrower, machine = beside(stack, own, LYING, mode)
    np.testing.assert_array_equal(borrower.passages(TEXTS, lambda: rule), vectors)
    for priority in (*Priority, None):
        context = hurried(0.001, priority)
        np.testing.assert_array_equal(borrower.questions(QUESTIONS, rule, context), own.embed_questions(QUESTIONS))
        assert borrower.rank(RANKED, rule, context) == MaxSimReranker(own).rerank(RANKED)
    assert not machine.received
    assert not borrower.trail.kinds[AuditEventKind.SENT]
    if rule is OffloadRule.NEVER:
        assert not borrower.trail.decisions


def test_a_question_to_a_collection_that_never_leaves_stays_beside_one_that_may(
    stack: ExitStack, own: TextEncoder
) -> None:
    borrower, machine = beside(stack, own, LYING)
    asked = [replace(RANKED[0], question="the secret one"), RANKED[1]]
    rules = (OffloadRule.NEVER, OffloadRule.ALLOWED)
    borrower.reranker.rerank(
        [
            replace(each, retrieved=replace(each.retrieved, offload=rule))
            for each, rule in zip(asked, rules, strict=True)
        ]
    )
    assert machine.texts()
    assert not any(b"secret" in request for request in machine.texts())


def test_a_collection_that_is_forbidden_to_leave_meanwhile_does_not(
    stack: ExitStack, own: TextEncoder, vectors: NDArray[np.float32]
) -> None:
    rule = OffloadRule.ALLOWED

    async def forbid(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        nonlocal rule
        rule = OffloadRule.NEVER
        texts = encoding_pb2.EmbedRequest.FromString(request).texts
        return encoding_pb2.EmbedResponse(vectors=own.embed(texts).tobytes()).SerializeToString()

    borrower, machine = beside(stack, own, forbid, longest_s=60)
    np.testing.assert_array_equal(borrower.passages(TEXTS, lambda: rule), vectors)
    # What was on its way already is that: a batch, and the one that goes with it.
    assert 1 <= len(machine.texts()) <= 2


@pytest.mark.soak
def test_a_machine_that_is_not_there_costs_nobody_a_vector(
    stack: ExitStack, own: TextEncoder, vectors: NDArray[np.float32]
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    borrower = stack.enter_context(borrowing(own, MaxSimReranker(own), [address], longest_s=5))
    for _ in range(TIMES):
        np.testing.assert_array_equal(borrower.passages(TEXTS), vectors)
        np.testing.assert_array_equal(borrower.questions(QUESTIONS[:1]), own.embed_questions(QUESTIONS[:1]))


@pytest.mark.parametrize("pinned", ["authority", "fingerprint"])
def test_a_wrong_certificate_gets_not_one_byte(
    stack: ExitStack, own: TextEncoder, vectors: NDArray[np.float32], tmp_path: Path, pinned: str
) -> None:
    now = datetime.now(UTC)
    shown = issue_server(make_authority("another", now), ["127.0.0.1"], now)
    machine = stack.enter_context(wayward_encoders(models(own), LYING, (shown.key, shown.certificate)))
    (tmp_path / "ca.pem").write_bytes(make_authority("ours", now).certificate)
    trust = Trust(authority=tmp_path / "ca.pem") if pinned == "authority" else Trust(fingerprint="ab" * 32)
    borrower = stack.enter_context(borrowing(own, MaxSimReranker(own), [machine.address], trust=trust, longest_s=5))
    np.testing.assert_array_equal(borrower.passages(TEXTS), vectors)
    np.testing.assert_array_equal(borrower.questions(QUESTIONS), own.embed_questions(QUESTIONS))
    assert not machine.received


def test_after_failures_a_machine_is_left_alone(stack: ExitStack, own: TextEncoder) -> None:
    borrower, machine = beside(stack, own, silent, breaker=Breaker(threshold=2, rest_s=3600), longest_s=0.1)
    for _ in range(5):
        borrower.questions(QUESTIONS[:1])
    assert len(machine.texts()) == 2
    known = borrower.desks["m0"].snapshot()
    assert (known.breaker, known.failures, known.embedded_texts) == ("open", 2, 0)


def test_documents_and_machines_share_the_work_and_it_is_told_how_far_it_is(
    stack: ExitStack, own: TextEncoder, vectors: NDArray[np.float32]
) -> None:
    begun, answer = threading.Event(), answering(own)

    async def once_begun_here(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        assert await asyncio.to_thread(begun.wait, 30)
        return await answer(request, context)

    borrower, machine = beside(stack, own, once_begun_here, OffloadMode.OVERFLOW, longest_s=60)

    def here(texts: Sequence[str]) -> NDArray[np.float32]:
        begun.set()
        assert machine.asked.wait(30)
        return own.embed(texts)

    told: list[int] = []
    got = borrower.passages(TEXTS, here=here, told=told.append)
    np.testing.assert_array_equal(got, vectors)
    assert told[0] == 0
    assert told == sorted(told)
    assert told[-1] == len(TEXTS)
    there = [text for request in machine.texts() for text in encoding_pb2.EmbedRequest.FromString(request).texts]
    assert 0 < len(there) == len(set(there)) < len(TEXTS)


def answering(own: TextEncoder) -> Reply:
    """Returns what embeds as it must."""

    async def embed(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        asked = encoding_pb2.EmbedRequest.FromString(request)
        questions = asked.purpose == encoding_pb2.EMBED_PURPOSE_QUESTION
        vectors = own.embed_questions(asked.texts) if questions else own.embed(asked.texts)
        return encoding_pb2.EmbedResponse(vectors=vectors.tobytes(), compute_seconds=0.001).SerializeToString()

    return embed


@pytest.mark.parametrize("failing", [dying, full])
def test_a_machine_that_comes_back_helps_with_the_rest_of_a_document(
    stack: ExitStack, own: TextEncoder, vectors: NDArray[np.float32], failing: Reply
) -> None:
    answer, back = answering(own), threading.Event()

    async def come_back(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        if len(machine.texts()) <= 3:
            return await failing(request, context)
        back.set()
        return await answer(request, context)

    def here(texts: Sequence[str]) -> NDArray[np.float32]:
        assert back.wait(30)
        return own.embed(texts)

    breaker = Breaker(threshold=2, rest_s=0.1)
    borrower, machine = beside(stack, own, come_back, breaker=breaker, longest_s=60)
    np.testing.assert_array_equal(borrower.passages(TEXTS, here=here), vectors)
    assert len(machine.texts()) > 3


def test_several_machines_share_a_document(stack: ExitStack, own: TextEncoder, vectors: NDArray[np.float32]) -> None:
    machines = [stack.enter_context(wayward_encoders(models(own), answering(own))) for _ in range(2)]
    addresses = [machine.address for machine in machines]
    borrower = stack.enter_context(borrowing(own, MaxSimReranker(own), addresses))
    np.testing.assert_array_equal(borrower.passages(TEXTS), vectors)
    assert all(machine.texts() for machine in machines)
    there = {
        text
        for machine in machines
        for request in machine.texts()
        for text in encoding_pb2.EmbedRequest.FromString(request).texts
    }
    assert there == set(TEXTS)


def test_vectors_that_are_made_anew_for_another_embedder_are_borrowed_where_they_may_leave(
    stack: ExitStack, own: TextEncoder, tmp_path: Path
) -> None:
    with closing(open_data_directory(tmp_path / "data", HashedWords())) as directory:
        for rule in OffloadRule:
            directory.collections.create(rule.value, CollectionSettings(offload=rule))
            text = f"The {rule.value} pump is greased every hour."
            directory.library.ingest(Upload(rule.value, "note.txt", "text/plain", text.encode()))
    borrower, machine = beside(stack, own, answering(own), longest_s=60)
    with closing(open_data_directory(tmp_path / "data", own, embedding=borrower.embedding)) as directory:
        for rule in OffloadRule:
            (found,) = directory.retriever.retrieve([RetrievalRequest("Which pump?", rule.value, 1, explain=True)])
            assert isinstance(found, Retrieved)
            (hit,) = found.hits
            one, other = own.embed_questions(["Which pump?"])[0], own.embed([hit.passage.text])[0]
            assert hit.dense_score == pytest.approx(float(one @ other), abs=1e-5)
    there = [text for each in machine.texts() for text in encoding_pb2.EmbedRequest.FromString(each).texts]
    assert there == ["The allowed pump is greased every hour.", "Which pump?"]


class HeldUp:
    """An embedder of questions that waits until it is let go."""

    def __init__(self, own: TextEncoder) -> None:
        self._own = own
        self.begun, self.let_go = threading.Event(), threading.Event()
        self._at_once = self.questions = 0
        self.most_at_once = 0

    def embed(self, questions: Sequence[str]) -> NDArray[np.float32]:
        self.questions += len(questions)
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        self.begun.set()
        assert self.let_go.wait(30)
        self._at_once -= 1
        return self._own.embed_questions(questions)


def test_of_a_race_the_first_is_heard_and_this_box_never_does_two_things_at_once(
    stack: ExitStack, own: TextEncoder
) -> None:
    borrower, _ = beside(stack, own, answering(own), OffloadMode.RACE, longest_s=60)
    here = HeldUp(own)
    racing = OffloadingEmbedding(borrower.loan, here.embed, 8)
    stack.callback(racing.close)
    stack.callback(here.let_go.set)
    asked = [Question(QUESTIONS[0], OffloadRule.ALLOWED, hurried())]
    for _ in range(2):
        np.testing.assert_array_equal(racing.questions(asked), own.embed_questions(QUESTIONS[:1]))
    assert here.begun.wait(30)
    assert here.questions == 1, "what had not begun was given up"
    here.let_go.set()
    kept = [Question(QUESTIONS[1], OffloadRule.NEVER, hurried())]
    np.testing.assert_array_equal(racing.questions(kept), own.embed_questions(QUESTIONS[1:2]))
    assert here.most_at_once == 1


async def turn() -> None:
    """Takes a turn on the event loop, after what was noted before."""


def test_a_machine_that_slows_down_is_not_waited_for_alone_and_that_is_held_against_it(
    stack: ExitStack, own: TextEncoder
) -> None:
    frozen = threading.Event()
    answer = answering(own)

    async def freezing(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        return await (silent if frozen.is_set() else answer)(request, context)

    borrower, machine = beside(stack, own, freezing, longest_s=600)
    for _ in range(3):
        borrower.questions(QUESTIONS[:1])
    before = len(machine.texts())
    frozen.set()
    np.testing.assert_array_equal(borrower.questions(QUESTIONS[:1]), own.embed_questions(QUESTIONS[:1]))
    assert len(machine.texts()) == before + 1
    assert borrower.trail.kinds[AuditEventKind.HEDGED] >= 1
    borrower.loan.courier.dispatch.begin(turn()).result(30)
    assert borrower.desks["m0"].last_problem == "this box was asked later and was done first"


def test_what_would_be_late_here_goes_elsewhere_and_the_rest_does_not(stack: ExitStack, own: TextEncoder) -> None:
    borrower, machine = beside(stack, own, answering(own), OffloadMode.OVERFLOW, longest_s=600)
    borrower.loan.measure(Work.QUESTIONS, 1, 100.0)  # a hundred seconds a question
    deadline = time.monotonic() + 4 * 350 * 1.25  # with the margin, a quarter of it is three questions and a half
    asked = [
        Question(question, OffloadRule.ALLOWED, RequestContext(RequestId(f"r{number}"), deadline=deadline))
        for number, question in enumerate(QUESTIONS[:6])
    ]
    np.testing.assert_array_equal(borrower.embedding.questions(asked), own.embed_questions(QUESTIONS[:6]))
    there = [encoding_pb2.EmbedRequest.FromString(request) for request in machine.texts()]
    assert sorted(request.request_id for request in there) == ["r3", "r4", "r5"]
    assert all(request.purpose == encoding_pb2.EMBED_PURPOSE_QUESTION for request in there)


def test_a_failure_here_ends_it_and_what_is_under_way_elsewhere(stack: ExitStack, own: TextEncoder) -> None:
    def broken(texts: Sequence[str]) -> NDArray[np.float32]:
        raise InferenceFailed("out of memory")

    borrower, _ = beside(stack, own, silent, OffloadMode.OVERFLOW, longest_s=600)
    with pytest.raises(InferenceFailed, match="out of memory"):
        borrower.passages(TEXTS, here=broken)


def test_a_box_that_shuts_down_goes_on_alone(stack: ExitStack, own: TextEncoder, vectors: NDArray[np.float32]) -> None:
    borrower, machine = beside(stack, own, silent, OffloadMode.PREFER_REMOTE, longest_s=600)

    def stop() -> None:
        assert machine.asked.wait(30)
        borrower.loan.courier.dispatch.stop()

    stopping = threading.Thread(target=stop, daemon=True)
    stopping.start()
    np.testing.assert_array_equal(borrower.passages(TEXTS), vectors)
    stopping.join(30)
    np.testing.assert_array_equal(borrower.questions(QUESTIONS), own.embed_questions(QUESTIONS))
    np.testing.assert_array_equal(borrower.passages(TEXTS), vectors)
