from pathlib import Path

import grpc
import numpy as np
import pytest

from edge_rag.api.v1 import encoding_pb2, encoding_pb2_grpc
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from tests.e2e.support.secured_daemon import Box, refused

TEXTS = ("Grease the bearings.", "", "Résumé: 東京 😀")
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def own() -> TextEncoder:
    return TextEncoder.open(ROOT / "models" / "minilm-l6")


def test_a_peer_gets_the_vectors_it_would_have_computed(box: Box, own: TextEncoder) -> None:
    with box.channel("peer") as channel:
        stub = encoding_pb2_grpc.EncodingStub(channel)
        models = stub.DescribeEncoders(encoding_pb2.DescribeEncodersRequest())
        assert (models.embedder, models.dimension) == (own.name, own.dimension)
        texts = TEXTS * 30
        for purpose in (encoding_pb2.EMBED_PURPOSE_UNSPECIFIED, encoding_pb2.EMBED_PURPOSE_PASSAGE):
            reply = stub.Embed(encoding_pb2.EmbedRequest(embedder=own.name, texts=texts, purpose=purpose))
            vectors = np.frombuffer(reply.vectors, dtype="<f4").reshape(len(texts), own.dimension)
            np.testing.assert_array_equal(vectors, own.embed(texts))
            assert reply.embedder == own.name
            assert reply.compute_seconds > 0


def test_a_peer_with_another_model_is_refused_with_the_local_models_name(box: Box, own: TextEncoder) -> None:
    with box.channel("peer") as channel:
        stub = encoding_pb2_grpc.EncodingStub(channel)
        error = refused(lambda: stub.Embed(encoding_pb2.EmbedRequest(embedder="another", texts=["a"])))
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert own.name in str(error.details())


@pytest.mark.parametrize(
    ("field", "request_"),
    [
        ("texts", encoding_pb2.EmbedRequest()),
        ("texts", encoding_pb2.EmbedRequest(texts=["a"] * 129)),
        ("texts", encoding_pb2.EmbedRequest(texts=["a" * 65_536] * 9)),
        ("texts[1]", encoding_pb2.EmbedRequest(texts=["a", "a" * 65_537])),
        ("purpose", encoding_pb2.EmbedRequest(texts=["a"], purpose=2)),  # type: ignore[arg-type]  # questions, once
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
