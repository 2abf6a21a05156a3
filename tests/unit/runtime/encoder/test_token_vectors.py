"""Packed token vectors are close to the exact ones, and reading them is safe whatever they are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.runtime.encoder.text_encoder import TokenVectors, pack, packed_bytes, unpack

SHAPES = st.tuples(
    st.integers(0, 12), st.integers(1, 200), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 3.0, 40.0])
)


def random_vectors(tokens: int, dimension: int, seed: int, shared: float) -> TokenVectors:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((tokens, dimension)) + shared * (np.arange(dimension) == dimension // 2)
    places = np.cumsum(rng.integers(0, 9, (tokens, 2)), axis=None).reshape(-1, 2)
    return TokenVectors(
        (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32), places.astype(np.int32)
    )


@given(SHAPES)
def test_no_value_is_further_off_than_a_step_and_places_are_exact(shape: tuple[int, int, int, float]) -> None:
    exact = random_vectors(*shape)
    rounded = unpack(pack(exact))
    np.testing.assert_array_equal(rounded.offsets, exact.offsets)
    assert rounded.vectors.shape == exact.vectors.shape
    assert rounded.vectors.dtype == np.float32
    # half a step of 2/15 of the largest value in its block, and the correction of a token's scales
    assert np.abs(rounded.vectors - exact.vectors).max(initial=0.0) <= 0.10 * np.abs(exact.vectors).max(initial=0.0)


@given(SHAPES)
def test_the_product_with_the_exact_vector_is_one(shape: tuple[int, int, int, float]) -> None:
    exact = random_vectors(*shape)
    np.testing.assert_allclose((unpack(pack(exact)).vectors * exact.vectors).sum(axis=1), 1.0, atol=1e-3)


@given(SHAPES)
def test_rounded_vectors_are_packed_to_the_same_bytes(shape: tuple[int, int, int, float]) -> None:
    packed = pack(random_vectors(*shape))
    assert len(packed) == packed_bytes(shape[0], shape[1])
    assert pack(unpack(packed)) == packed


def test_cosines_with_other_vectors_are_kept_without_bias() -> None:
    exact, others = random_vectors(400, 384, 1, 0.0), random_vectors(50, 384, 2, 0.0)
    errors = (unpack(pack(exact)).vectors - exact.vectors) @ others.vectors.T
    assert abs(errors.mean()) < 0.0005
    assert errors.std() < 0.006


def test_a_token_takes_less_than_a_seventh_of_its_exact_vector() -> None:
    assert packed_bytes(1000, 384) < 1000 * 384 * 4 / 7


def test_zeros_stay_zeros() -> None:
    zeros = TokenVectors(np.zeros((2, 70), np.float32), np.array([[0, 1], [1, 2]], np.int32))
    np.testing.assert_array_equal(unpack(pack(zeros)).vectors, zeros.vectors)


@given(st.binary(max_size=600))
def test_other_bytes_are_refused_or_read_as_finite_vectors(content: bytes) -> None:
    try:
        read = unpack(content)
    except ValueError:
        return
    assert np.isfinite(read.vectors).all()


def test_a_count_that_the_bytes_do_not_hold_is_refused() -> None:
    packed = pack(random_vectors(3, 64, 0, 0.0))
    for wrong in (packed[:-1], packed + b"\0", b"\xff\xff\xff\xff" + packed[4:], packed[:4] + bytes(4) + packed[8:]):
        with pytest.raises(ValueError, match=r"packed vectors|bytes are not"):
            unpack(wrong)
