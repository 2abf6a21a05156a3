"""What every encoder promises the retriever (``Embedder``) and the reranker (``TokenVectorizer``)."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np
import pytest

from edge_rag.core.monitoring.event import AuditEventKind
from edge_rag.core.placement import Precision
from edge_rag.errors import InferenceFailed
from edge_rag.index.token_vectors import PassageEmbedder
from edge_rag.reranker.scoring import PassageVectorizer
from edge_rag.runtime.encoder.npu.encoders import open_text_encoder_on_npu
from edge_rag.runtime.encoder.text_encoder import TextEncoder, unpack
from tests.e2e.support.running_daemon import start_daemon
from tests.support.accelerators.gpu import padded_text_encoder
from tests.support.accelerators.npu import EMBEDDER, ignore, needs_npu, small_embedder
from tests.support.offloading_encoders import OffloadingBox, offloading

# One of them is a daemon's, which is given up where the machine is busy with something else.
pytestmark = pytest.mark.daemon

TEXTS = (
    "How often must the bearings be greased?",
    "valve",
    "",
    "Résumé: naïve café 東京 😀",
    "Never plug a relief valve that lifts, and report it to the shift leader before the line is pressurized again, "
    "since nobody else will",
)


class Encoder(PassageEmbedder, PassageVectorizer, Protocol):
    """Both ports."""


class BorrowedEncoder:
    """What a box embeds passages with that borrows another's encoder; questions and token vectors are its own."""

    def __init__(self, box: OffloadingBox) -> None:
        self._borrower = box
        own = box.local
        self.name, self.dimension, self.max_tokens = own.name, own.dimension, own.max_tokens
        self.count_tokens, self.token_vectors = own.count_tokens, own.token_vectors
        self.embed_passages, self.passage_tokens = own.embed_passages, own.passage_tokens
        self.embed, self.embed_questions = box.passages, own.embed_questions


@contextmanager
def borrowed_encoder(folder: Path) -> Iterator[Encoder]:
    """Borrows the encoder of a real daemon."""
    own = TextEncoder.open(EMBEDDER)
    lender = start_daemon(folder / "lender", folder / "lender.log")
    try:
        with offloading(own, [lender.address]) as box:
            yield BorrowedEncoder(box)
            assert box.states["m0"].embedded_texts > len(TEXTS)
            assert not box.audit.kinds[AuditEventKind.TAKEN_OVER]
    finally:
        lender.kill()


@pytest.fixture(
    scope="module",
    params=["processor cores", "form for GPUs", "another edge-rag's", pytest.param("NPU", marks=needs_npu)],
)
def encoder(
    request: pytest.FixtureRequest, npu_graphs: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Encoder]:
    if request.param == "another edge-rag's":
        with borrowed_encoder(tmp_path_factory.mktemp("lender")) as encoder:
            yield encoder
    elif request.param == "NPU":
        folder = small_embedder(tmp_path_factory.mktemp("models") / "small")
        yield open_text_encoder_on_npu(folder, {}, npu_graphs, ignore)
    elif request.param == "form for GPUs":
        yield padded_text_encoder(Precision.FP16)
    else:
        yield TextEncoder.open(EMBEDDER)


def test_vectors_have_unit_length_and_the_dimension_that_was_said(encoder: Encoder) -> None:
    for vectors in (encoder.embed(TEXTS), encoder.embed_questions(TEXTS)):
        assert vectors.shape == (len(TEXTS), encoder.dimension)
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_a_text_gets_the_same_bits_alone_as_among_others(encoder: Encoder) -> None:
    together = encoder.embed(TEXTS)
    tokens = encoder.token_vectors(TEXTS)
    for index in (0, 4):
        np.testing.assert_array_equal(encoder.embed([TEXTS[index]])[0], together[index])
        np.testing.assert_array_equal(encoder.token_vectors([TEXTS[index]])[0].vectors, tokens[index].vectors)


def test_threads_get_the_vectors_they_would_get_alone(encoder: Encoder) -> None:
    expected = encoder.embed(TEXTS[:2])
    with ThreadPoolExecutor(3) as pool:
        for vectors in pool.map(lambda _: encoder.embed(TEXTS[:2]), range(3)):
            np.testing.assert_array_equal(vectors, expected)


def test_every_token_of_a_text_has_a_vector_and_its_place(encoder: Encoder) -> None:
    for text, made in zip(TEXTS, encoder.token_vectors(TEXTS), strict=True):
        words = [text[start:end] for start, end in made.offsets]
        assert "".join(words) == text.replace(" ", "")
        assert made.vectors.shape == (len(words), encoder.dimension)
        np.testing.assert_allclose(np.linalg.norm(made.vectors, axis=1), 1, atol=1e-5)


def test_of_a_longer_text_than_it_reads_the_beginning_is_embedded(encoder: Encoder) -> None:
    words = ["pump", "valve"] * encoder.max_tokens
    beginning = words[: encoder.max_tokens - 2]
    assert encoder.count_tokens(" ".join(beginning)) == encoder.max_tokens
    whole, cut = encoder.embed([" ".join(words), " ".join(beginning)])
    np.testing.assert_array_equal(whole, cut)


def test_a_passage_has_the_same_vector_and_token_vectors_from_one_run_as_from_two(encoder: Encoder) -> None:
    for texts in (TEXTS, ("pump valve " * (encoder.max_tokens + 3), "valve"), ()):
        vectors, tokens = encoder.embed_passages(texts)
        np.testing.assert_array_equal(vectors, encoder.embed(texts))
        for text, made, expected in zip(texts, map(unpack, tokens), encoder.passage_tokens(texts), strict=True):
            np.testing.assert_array_equal(made.vectors, expected.vectors)
            np.testing.assert_array_equal(made.offsets, expected.offsets)
            assert "".join(text[start:end] for start, end in made.offsets) == text.replace(" ", "")


def test_a_longer_text_than_it_reads_has_a_vector_for_every_token(encoder: Encoder) -> None:
    text = "pump valve " * (encoder.max_tokens + 3)
    (made,) = encoder.token_vectors([text])
    assert [text[start:end] for start, end in made.offsets] == text.split()
    assert made.vectors.shape == (2 * encoder.max_tokens + 6, encoder.dimension)


def test_no_texts_and_a_text_without_tokens_are_fine(encoder: Encoder) -> None:
    assert encoder.embed([]).shape == (0, encoder.dimension)
    assert encoder.token_vectors([]) == []
    (made,) = encoder.token_vectors([""])
    assert made.vectors.shape == (0, encoder.dimension)
    assert made.offsets.shape == (0, 2)


def test_text_that_is_not_unicode_is_refused_and_the_next_is_not(encoder: Encoder) -> None:
    with pytest.raises(InferenceFailed):
        encoder.embed(["\ud800"])
    assert encoder.embed(["pump"]).shape == (1, encoder.dimension)
