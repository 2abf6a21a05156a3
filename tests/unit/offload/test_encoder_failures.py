"""For any failure of a remote, texts are encoded as the local encoder would have done it, in time."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from numpy.typing import NDArray

from edge_rag.api.v1 import encoding_pb2
from edge_rag.bootstrap.open_directory import OpenDirectory
from edge_rag.core.documents.collection import CollectionSettings
from edge_rag.core.documents.document import Upload
from edge_rag.core.monitoring.event import AuditEventKind
from edge_rag.core.passage import RetrievalRequest, Retrieved
from edge_rag.core.placement import OffloadMode, OffloadRule
from edge_rag.errors import InferenceFailed
from edge_rag.offload.ports import EncoderModels
from edge_rag.offload.remotes.circuit_breaker import CircuitBreaker
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from tests.support.faulty_encoders import (
    EMBEDDING,
    WRONG_MODEL,
    FaultyEncoders,
    Reply,
    dying,
    faulty_encoders,
    full,
    silent,
)
from tests.support.offloading_encoders import ALWAYS_CLOSED, EMBEDDER, OffloadingBox, offloading
from tests.unit.offload.conftest import WrongCertificate
from tests.unit.retriever.hashed_words import HashedWords

# Timeouts apply to remotes, so other load on the machine would make them late.
pytestmark = pytest.mark.daemon

TIMES = 100 if "EDGE_RAG_SOAK_SECONDS" in os.environ else 2
TEXTS = tuple(f"Pump {number} is greased every {number} hours." for number in range(150))
MODES = (OffloadMode.PREFER_REMOTE, OffloadMode.OVERFLOW)


@pytest.fixture(scope="module")
def local() -> TextEncoder:
    return TextEncoder.open(EMBEDDER)


@pytest.fixture(scope="module")
def vectors(local: TextEncoder) -> NDArray[np.float32]:
    return local.embed(TEXTS)


def models(local: TextEncoder, **other: Any) -> EncoderModels:
    return replace(EncoderModels(local.name, local.dimension), **other)


def box_with_remote(
    stack: ExitStack,
    local: TextEncoder,
    reply: Reply,
    mode: OffloadMode = OffloadMode.PREFER_REMOTE,
    breaker: CircuitBreaker = ALWAYS_CLOSED,
    timeout_s: float = 0.3,
    **other: Any,
) -> tuple[OffloadingBox, FaultyEncoders]:
    remote = stack.enter_context(faulty_encoders(models(local, **other), reply))
    box = offloading(local, [remote.address], mode, timeout_s=timeout_s, breaker=breaker)
    return stack.enter_context(box), remote


@pytest.mark.soak
@pytest.mark.parametrize("reply", EMBEDDING)
def test_a_faulty_remote_never_costs_a_vector(
    stack: ExitStack, local: TextEncoder, vectors: NDArray[np.float32], reply: str
) -> None:
    box, remote = box_with_remote(stack, local, EMBEDDING[reply])
    for _ in range(TIMES):
        np.testing.assert_array_equal(box.passages(TEXTS), vectors)
    assert remote.texts()
    assert box.states["m0"].embedded_texts == 0


@pytest.mark.parametrize("mode", MODES)
def test_valid_vectors_of_another_model_are_never_stored(
    stack: ExitStack, local: TextEncoder, vectors: NDArray[np.float32], mode: OffloadMode
) -> None:
    box, remote = box_with_remote(stack, local, WRONG_MODEL, mode, timeout_s=60)
    np.testing.assert_array_equal(box.passages(TEXTS, local_embed=after_remote_started(local, remote)), vectors)
    assert remote.texts()
    reasons = [each.reason for each in box.audit.events if each.kind is AuditEventKind.BREAKER]
    assert any("differs from the vector of the same text computed locally" in reason for reason in reasons)
    before = len(remote.texts())
    np.testing.assert_array_equal(box.passages(TEXTS), vectors)
    assert len(remote.texts()) == before, "it gets no more texts for now"


def after_remote_started(local: TextEncoder, remote: FaultyEncoders) -> Callable[[Sequence[str]], NDArray[np.float32]]:
    def embed(texts: Sequence[str]) -> NDArray[np.float32]:
        assert remote.received_texts.wait(30)
        return local.embed(texts)

    return embed


@pytest.mark.parametrize("other", [{"embedder": "minilm-l6-0123456789abcdef"}, {"dimension": 383}, {"embedder": ""}])
def test_a_remote_with_another_embedder_gets_no_text_and_is_reported(
    stack: ExitStack, local: TextEncoder, vectors: NDArray[np.float32], other: dict[str, Any]
) -> None:
    box, remote = box_with_remote(stack, local, WRONG_MODEL, **other)
    np.testing.assert_array_equal(box.passages(TEXTS), vectors)
    assert not remote.texts()
    state = box.states["m0"]
    assert "its embedder is" in state.last_problem
    assert local.name in state.last_problem
    assert (state.failures, state.breaker.failures) == (0, 0)
    reasons = [each.reason for each in box.audit.events if each.kind is AuditEventKind.BREAKER]
    assert any(reason.startswith("m0 is not used for embedding passages: its embedder is") for reason in reasons)


def test_the_models_of_a_remote_are_checked_before_there_is_work(stack: ExitStack, local: TextEncoder) -> None:
    box, remote = box_with_remote(stack, local, WRONG_MODEL, embedder="another")
    box.offload.check_models()
    box.audit.wait_for(1)
    assert {each.kind for each in box.audit.events} == {AuditEventKind.BREAKER}
    assert {method for method, _ in remote.received} == {"DescribeEncoders"}


@pytest.mark.parametrize("mode", OffloadMode)
@pytest.mark.parametrize("rule", [OffloadRule.NEVER, OffloadRule.REDACTED])
def test_a_collection_that_must_not_leave_unredacted_is_never_sent(
    stack: ExitStack, local: TextEncoder, vectors: NDArray[np.float32], rule: OffloadRule, mode: OffloadMode
) -> None:
    box, remote = box_with_remote(stack, local, WRONG_MODEL, mode)
    np.testing.assert_array_equal(box.passages(TEXTS, lambda: rule), vectors)
    assert not remote.received
    assert not box.audit.kinds[AuditEventKind.SENT]
    if rule is OffloadRule.NEVER:
        assert not box.audit.events


def test_a_rule_change_during_ingest_stops_the_offload(
    stack: ExitStack, local: TextEncoder, vectors: NDArray[np.float32]
) -> None:
    rule = OffloadRule.ALLOWED

    async def forbid(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        nonlocal rule
        rule = OffloadRule.NEVER
        texts = encoding_pb2.EmbedRequest.FromString(request).texts
        return encoding_pb2.EmbedResponse(vectors=local.embed(texts).tobytes()).SerializeToString()

    box, remote = box_with_remote(stack, local, forbid, timeout_s=60)
    np.testing.assert_array_equal(box.passages(TEXTS, lambda: rule), vectors)
    # Two batches were in flight already.
    assert 1 <= len(remote.texts()) <= 2


@pytest.mark.soak
def test_an_unreachable_remote_never_costs_a_vector(
    stack: ExitStack, local: TextEncoder, vectors: NDArray[np.float32]
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    box = stack.enter_context(offloading(local, [address], timeout_s=5))
    for _ in range(TIMES):
        np.testing.assert_array_equal(box.passages(TEXTS), vectors)


def test_a_remote_with_a_wrong_certificate_receives_nothing(
    stack: ExitStack, local: TextEncoder, vectors: NDArray[np.float32], wrong_certificate: WrongCertificate
) -> None:
    remote = stack.enter_context(faulty_encoders(models(local), WRONG_MODEL, wrong_certificate.shown))
    box = stack.enter_context(offloading(local, [remote.address], trust=wrong_certificate.trust, timeout_s=5))
    np.testing.assert_array_equal(box.passages(TEXTS), vectors)
    assert not remote.received


def test_after_failures_the_circuit_breaker_opens(
    stack: ExitStack, local: TextEncoder, vectors: NDArray[np.float32]
) -> None:
    box, remote = box_with_remote(
        stack, local, silent, breaker=CircuitBreaker(threshold=2, base_open_s=3600), timeout_s=0.1
    )
    for _ in range(3):
        np.testing.assert_array_equal(box.passages(TEXTS), vectors)
    assert len(remote.texts()) == 2
    known = box.states["m0"].snapshot()
    assert (known.breaker, known.failures, known.embedded_texts) == ("open", 2, 0)


def test_all_encoders_share_a_document_and_progress_is_reported(
    stack: ExitStack, local: TextEncoder, vectors: NDArray[np.float32]
) -> None:
    started, answer = threading.Event(), correct_replies(local)

    async def once_begun_here(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        assert await asyncio.to_thread(started.wait, 30)
        return await answer(request, context)

    box, remote = box_with_remote(stack, local, once_begun_here, OffloadMode.OVERFLOW, timeout_s=60)

    def local_embed(texts: Sequence[str]) -> NDArray[np.float32]:
        started.set()
        assert remote.received_texts.wait(30)
        return local.embed(texts)

    progress: list[int] = []
    got = box.passages(TEXTS, local_embed=local_embed, on_progress=progress.append)
    np.testing.assert_array_equal(got, vectors)
    assert progress[0] == 0
    assert progress == sorted(progress)
    assert progress[-1] == len(TEXTS)
    remote_texts = [text for request in remote.texts() for text in encoding_pb2.EmbedRequest.FromString(request).texts]
    assert 0 < len(remote_texts) == len(set(remote_texts)) < len(TEXTS)


def correct_replies(local: TextEncoder) -> Reply:
    async def embed(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        received_texts = encoding_pb2.EmbedRequest.FromString(request)
        vectors = local.embed(received_texts.texts)
        return encoding_pb2.EmbedResponse(vectors=vectors.tobytes(), compute_seconds=0.001).SerializeToString()

    return embed


@pytest.mark.parametrize("failing", [dying, full])
def test_a_recovered_remote_helps_with_the_rest_of_a_document(
    stack: ExitStack, local: TextEncoder, vectors: NDArray[np.float32], failing: Reply
) -> None:
    answer, back = correct_replies(local), threading.Event()

    async def come_back(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        if len(remote.texts()) <= 3:
            return await failing(request, context)
        back.set()
        return await answer(request, context)

    def local_embed(texts: Sequence[str]) -> NDArray[np.float32]:
        assert back.wait(30)
        return local.embed(texts)

    breaker = CircuitBreaker(threshold=2, base_open_s=0.1)
    box, remote = box_with_remote(stack, local, come_back, breaker=breaker, timeout_s=60)
    np.testing.assert_array_equal(box.passages(TEXTS, local_embed=local_embed), vectors)
    assert len(remote.texts()) > 3


def test_several_remotes_share_a_document(stack: ExitStack, local: TextEncoder, vectors: NDArray[np.float32]) -> None:
    remotes = [stack.enter_context(faulty_encoders(models(local), correct_replies(local))) for _ in range(2)]
    addresses = [remote.address for remote in remotes]
    box = stack.enter_context(offloading(local, addresses))
    np.testing.assert_array_equal(box.passages(TEXTS), vectors)
    assert all(remote.texts() for remote in remotes)
    remote_texts = {
        text
        for remote in remotes
        for request in remote.texts()
        for text in encoding_pb2.EmbedRequest.FromString(request).texts
    }
    assert remote_texts == set(TEXTS)


def test_reembedding_offloads_only_allowed_collections(stack: ExitStack, local: TextEncoder, tmp_path: Path) -> None:
    with closing(OpenDirectory(tmp_path / "data", HashedWords())) as directory:
        for rule in OffloadRule:
            directory.collections.create(rule.value, CollectionSettings(offload=rule))
            text = f"The {rule.value} pump is greased every hour."
            directory.library.ingest(Upload.of_bytes(rule.value, "note.txt", "text/plain", text.encode()))
    box, remote = box_with_remote(stack, local, correct_replies(local), timeout_s=60)
    with closing(OpenDirectory(tmp_path / "data", local, embedding=box.embedding)) as directory:
        for rule in OffloadRule:
            (found,) = directory.retriever.retrieve([RetrievalRequest("Which pump?", rule.value, 1, explain=True)])
            assert isinstance(found, Retrieved)
            (hit,) = found.hits
            one, other = local.embed_questions(["Which pump?"])[0], local.embed([hit.passage.text])[0]
            assert hit.dense_score == pytest.approx(float(one @ other), abs=1e-5)
    remote_texts = [text for each in remote.texts() for text in encoding_pb2.EmbedRequest.FromString(each).texts]
    assert remote_texts == ["The allowed pump is greased every hour."]


def test_a_local_failure_ends_the_document_and_calls_in_flight(stack: ExitStack, local: TextEncoder) -> None:
    def broken(texts: Sequence[str]) -> NDArray[np.float32]:
        raise InferenceFailed("out of memory")

    box, _ = box_with_remote(stack, local, silent, OffloadMode.OVERFLOW, timeout_s=600)
    with pytest.raises(InferenceFailed, match="out of memory"):
        box.passages(TEXTS, local_embed=broken)


def test_after_shutdown_the_local_encoder_does_all(
    stack: ExitStack, local: TextEncoder, vectors: NDArray[np.float32]
) -> None:
    box, remote = box_with_remote(stack, local, silent, OffloadMode.PREFER_REMOTE, timeout_s=600)

    def stop() -> None:
        assert remote.received_texts.wait(30)
        box.offload.loop.stop(box.offload.remotes.close)

    stopping = threading.Thread(target=stop, daemon=True)
    stopping.start()
    np.testing.assert_array_equal(box.passages(TEXTS), vectors)
    stopping.join(30)
    np.testing.assert_array_equal(box.passages(TEXTS), vectors)
