from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.ids import ChunkId, DocumentId
from edge_rag.core.passage import Hit, OtherWording, Passage, RerankRequest, Retrieved
from edge_rag.core.placement import OffloadRule
from edge_rag.core.query import Wordings
from edge_rag.errors import RemoteFailed
from edge_rag.offload.encoding.messages import (
    RemoteRank,
    RemoteRanks,
    build_candidates,
    checked_ranks,
    checked_vectors,
    same_vector,
)

GOOD = RemoteRanks(
    (RemoteRank(2, 1.5, (0.1, -0.1)), RemoteRank(0, 1.5, ()), RemoteRank(1, -3.0, (9.0,))), 0.5, 0.0, 0.1
)
SENTENCES = (0, 1, 2)


def packed(*numbers: float) -> bytes:
    return struct.pack(f"<{len(numbers)}f", *numbers)


def test_valid_vectors_are_returned_unchanged() -> None:
    vectors = checked_vectors(packed(0.6, 0.8, 0.0, 1.0), texts=2, dimension=2)
    np.testing.assert_array_equal(vectors, np.array([[0.6, 0.8], [0.0, 1.0]], dtype=np.float32))
    assert checked_vectors(b"", 0, 384).shape == (0, 384)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        packed(1.0),
        packed(0.6, 0.8, 0.0),
        packed(0.6, 0.8, 0.0, 1.0, 0.0),
        packed(0.6, 0.8, float("nan"), 1.0),
        packed(0.6, 0.8, float("inf"), 1.0),
        packed(0.6, 0.8, 0.0, 0.0),
        packed(0.6, 0.8, 0.0, 1.01),
        packed(3e38, 3e38, 0.0, 1.0),
        packed(0.6, 0.8, 0.0, 1.0)[:-1],
    ],
)
def test_invalid_vectors_are_rejected(data: bytes) -> None:
    with pytest.raises(RemoteFailed):
        checked_vectors(data, texts=2, dimension=2)


@given(data=st.binary(max_size=64), texts=st.integers(0, 4), dimension=st.integers(1, 4))
def test_arbitrary_bytes_are_never_accepted_as_invalid_vectors(data: bytes, texts: int, dimension: int) -> None:
    try:
        vectors = checked_vectors(data, texts, dimension)
    except RemoteFailed:
        return
    assert vectors.shape == (texts, dimension)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=2e-3)


def test_vectors_of_different_texts_differ() -> None:
    one, other = np.array([0.6, 0.8], dtype=np.float32), np.array([0.8, 0.6], dtype=np.float32)
    assert same_vector(one, one)
    assert not same_vector(one, other)


def test_valid_ranks_are_returned_unchanged() -> None:
    assert checked_ranks(GOOD, SENTENCES, limit=3) is GOOD
    similar = replace(GOOD, ranked=(RemoteRank(2, 1.5, (0.1, -0.1), (0.5, 0.4)), *GOOD.ranked[1:]))
    assert checked_ranks(similar, SENTENCES, limit=3) is similar, "earlier versions do not tell it"
    assert checked_ranks(replace(GOOD, ranked=GOOD.ranked[:2]), SENTENCES, limit=2).evidence == 0.5


@pytest.mark.parametrize(
    "ranks",
    [
        replace(GOOD, ranked=()),
        replace(GOOD, ranked=GOOD.ranked[:2]),
        replace(GOOD, ranked=(*GOOD.ranked, GOOD.ranked[0])),
        replace(GOOD, ranked=(GOOD.ranked[0], GOOD.ranked[0], GOOD.ranked[2])),
        replace(GOOD, ranked=GOOD.ranked[::-1]),
        replace(GOOD, ranked=(*GOOD.ranked[:2], RemoteRank(3, -9.0, ()))),
        replace(GOOD, ranked=(*GOOD.ranked[:2], RemoteRank(1, -9.0, ()))),
        replace(GOOD, ranked=(*GOOD.ranked[:2], RemoteRank(1, float("nan"), (0.0,)))),
        replace(GOOD, ranked=(*GOOD.ranked[:2], RemoteRank(1, -9.0, (float("inf"),)))),
        replace(GOOD, ranked=(RemoteRank(2, 1.5, (0.1, -0.1), (0.5,)), *GOOD.ranked[1:])),
        replace(GOOD, ranked=(RemoteRank(2, 1.5, (0.1, -0.1), (0.5, float("nan"))), *GOOD.ranked[1:])),
        replace(GOOD, evidence=1.5),
        replace(GOOD, evidence=float("nan")),
    ],
)
def test_invalid_ranks_are_rejected(ranks: RemoteRanks) -> None:
    with pytest.raises(RemoteFailed):
        checked_ranks(ranks, SENTENCES, limit=3)


def test_a_remote_that_reranks_gets_the_main_wording_alone() -> None:
    passage = Passage(ChunkId(1), DocumentId("d"), "d.txt", None, 0, 4, "text")
    alone = Retrieved((Hit(passage, 1.0),), {"pump": 2.0}, excerpt="How often is the pump oiled?")
    wordings = Wordings("How often?", standalone=alone.excerpt)
    several = replace(alone, wordings=wordings, others=(OtherWording("How often?", {}, True),))

    sent = build_candidates(OffloadRule.ALLOWED, "r", RerankRequest(several.excerpt, several, 5), b"salt")

    assert (sent.question, sent.terms) == ("How often is the pump oiled?", (("pump", 2.0),))
    assert sent == build_candidates(OffloadRule.ALLOWED, "r", RerankRequest(alone.excerpt, alone, 5), b"salt")
