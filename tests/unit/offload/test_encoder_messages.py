import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.placement import OffloadRule
from edge_rag.errors import PermissionDenied, RemoteFailed
from edge_rag.offload.encoding.messages import build_texts, checked_vectors, same_vector


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


@pytest.mark.parametrize("rule", [OffloadRule.NEVER, OffloadRule.REDACTED])
def test_no_request_is_built_for_a_collection_that_must_not_leave_unredacted(rule: OffloadRule) -> None:
    with pytest.raises(PermissionDenied):
        build_texts(rule, "m", ["a"])
