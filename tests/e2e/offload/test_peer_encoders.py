"""A daemon computes for its peers exactly what they would compute themselves, within limits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import grpc
import numpy as np
import pytest

from edge_rag.api.v1 import encoding_pb2, encoding_pb2_grpc
from edge_rag.reranker.max_sim import MaxSimReranker
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from tests.contract.test_reranker_contract import QUESTIONS, ask, hits
from tests.e2e.support.secured_daemon import Box, refused

TEXTS = ("Grease the bearings.", "", "Résumé: 東京 😀")
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def own() -> TextEncoder:
    return TextEncoder.open(ROOT / "models" / "minilm-l6")


def candidates(boost: float | None = None) -> list[encoding_pb2.Candidate]:
    passages = (hit.passage for hit in hits())
    return [encoding_pb2.Candidate(text=each.text, headings=each.context, boost=boost) for each in passages]


def test_a_peer_gets_the_vectors_it_would_have_computed(box: Box, own: TextEncoder) -> None:
    with box.channel("peer") as channel:
        stub = encoding_pb2_grpc.EncodingStub(channel)
        models = stub.DescribeEncoders(encoding_pb2.DescribeEncodersRequest())
        assert (models.embedder, models.dimension) == (own.name, own.dimension)
        texts = TEXTS * 30
        for purpose, embed in (
            (encoding_pb2.EMBED_PURPOSE_UNSPECIFIED, own.embed),
            (encoding_pb2.EMBED_PURPOSE_QUESTION, own.embed_questions),
        ):
            reply = stub.Embed(encoding_pb2.EmbedRequest(embedder=own.name, texts=texts, purpose=purpose))
            vectors = np.frombuffer(reply.vectors, dtype="<f4").reshape(len(texts), own.dimension)
            np.testing.assert_array_equal(vectors, embed(texts))
            assert reply.embedder == own.name
            assert reply.compute_seconds > 0


def test_a_peer_gets_the_ranks_it_would_have_computed(box: Box, own: TextEncoder) -> None:
    asked = ask(QUESTIONS[0], limit=4)
    (expected,) = MaxSimReranker(own).rerank([asked])
    terms = [encoding_pb2.TermWeight(word=word, weight=weight) for word, weight in asked.retrieved.term_weights.items()]
    with box.channel("peer") as channel:
        stub = encoding_pb2_grpc.EncodingStub(channel)
        reranker = stub.DescribeEncoders(encoding_pb2.DescribeEncodersRequest()).reranker
        for _ in range(2):  # the second time from the vectors that are kept
            request = encoding_pb2.RerankRequest(
                reranker=reranker, question=QUESTIONS[0], passages=candidates(), terms=terms, limit=4
            )
            reply = stub.Rerank(request)
            places = [hits()[each.passage].passage.chunk_id for each in reply.ranked]
            assert places == [each.passage.chunk_id for each in expected.passages]
            for there, here in zip(reply.ranked, expected.passages, strict=True):
                assert there.score == here.score
                assert list(there.evidence) == [sentence.evidence for sentence in here.sentences]
            assert reply.evidence == expected.evidence


def test_a_peer_with_another_model_is_refused_with_the_local_models_name(box: Box, own: TextEncoder) -> None:
    with box.channel("peer") as channel:
        stub = encoding_pb2_grpc.EncodingStub(channel)
        for call in (
            lambda: stub.Embed(encoding_pb2.EmbedRequest(embedder="another", texts=["a"])),
            lambda: stub.Rerank(
                encoding_pb2.RerankRequest(reranker="another", question="a", passages=candidates(), limit=1)
            ),
        ):
            error = refused(call)
            assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
            assert own.name in str(error.details())


Spoil = Callable[[encoding_pb2.RerankRequest], object]


@pytest.mark.parametrize(
    ("field", "spoil"),
    [
        ("question", lambda request: request.ClearField("question")),
        ("passages", lambda request: request.ClearField("passages")),
        ("passages", lambda request: request.passages.extend(candidates() * 50)),
        ("passages", lambda request: request.passages.extend([encoding_pb2.Candidate(text="x" * 65_536)] * 5)),
        ("passages[1].text", lambda request: request.passages[1].ClearField("text")),
        ("passages[0].headings", lambda request: request.passages[0].headings.extend(["h"] * 65)),
        ("passages[0].boost", lambda request: setattr(request.passages[0], "boost", float("nan"))),
        ("passages[0].boost", lambda request: setattr(request.passages[0], "boost", 0.0)),
        ("terms[0]", lambda request: request.terms.add(word="a", weight=float("inf"))),
        ("terms", lambda request: request.terms.extend([encoding_pb2.TermWeight(word="a")] * 1025)),
        ("limit", lambda request: request.ClearField("limit")),
        ("sharing", lambda request: setattr(request, "sharing", "../x")),
    ],
)
def test_an_unusable_field_of_a_request_for_ranks_is_named(box: Box, field: str, spoil: Spoil) -> None:
    request = encoding_pb2.RerankRequest(question="a", passages=candidates(), limit=1)
    spoil(request)
    with box.channel("peer") as channel:
        error = refused(lambda: encoding_pb2_grpc.EncodingStub(channel).Rerank(request))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert str(error.details()).startswith(f"{field}: ")


@pytest.mark.parametrize(
    ("field", "request_"),
    [
        ("texts", encoding_pb2.EmbedRequest()),
        ("texts", encoding_pb2.EmbedRequest(texts=["a"] * 129)),
        ("texts", encoding_pb2.EmbedRequest(texts=["a" * 65_536] * 9)),
        ("texts[1]", encoding_pb2.EmbedRequest(texts=["a", "a" * 65_537])),
        ("purpose", encoding_pb2.EmbedRequest(texts=["a"], purpose=7)),  # type: ignore[arg-type]
        ("request_id", encoding_pb2.EmbedRequest(texts=["a"], request_id="a b")),
    ],
)
def test_an_unusable_field_of_a_request_for_vectors_is_named(
    box: Box, field: str, request_: encoding_pb2.EmbedRequest
) -> None:
    with box.channel("peer") as channel:
        error = refused(lambda: encoding_pb2_grpc.EncodingStub(channel).Embed(request_))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert str(error.details()).startswith(f"{field}: ")


def test_embedding_is_charged_to_the_peers_quota(box: Box, own: TextEncoder) -> None:
    with box.channel("frugal-peer") as channel:
        stub = encoding_pb2_grpc.EncodingStub(channel)
        request = encoding_pb2.EmbedRequest(embedder=own.name, texts=["pump valve " * 300] * 4)
        assert len(stub.Embed(request).vectors) == 4 * 4 * own.dimension
        error = refused(lambda: stub.Embed(request))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "tokens a minute" in str(error.details())
