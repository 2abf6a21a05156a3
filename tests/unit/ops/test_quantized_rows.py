"""QuantizedRows: columns of a packed matrix, to the last bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.unit.ops.quantized_case import Matrix, Shape, run_matrix_op


@settings(max_examples=examples(40), deadline=None)
@given(
    shape=st.builds(
        Shape,
        K=st.integers(1, 300),
        N=st.integers(1, 70),
        bits=st.sampled_from([4, 8]),
        block_size=st.sampled_from([8, 32, 128, 1024]),
    ),
    stored=st.sampled_from(["middle", "zero points", "float32", "float16", "uint8"]),
    minima=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_row_is_the_column_rounded_at_each_step(shape: Shape, stored: str, minima: bool, seed: int) -> None:
    if stored in ("middle", "zero points"):
        matrix = Matrix.random(shape, seed, zero_points=stored == "zero points")
    else:
        matrix = Matrix.stored(shape, seed, stored, minima, groups=shape.blocks)
    indices = np.random.default_rng(seed).integers(0, shape.N, (3, 5))
    found = run_matrix_op("QuantizedRows", matrix, indices)
    np.testing.assert_array_equal(found, matrix.rounded().T[indices])


def test_any_number_of_indices_can_be_looked_up() -> None:
    matrix = Matrix.random(Shape(K=896, N=300, block_size=128), seed=0, zero_points=True)
    rows = matrix.values().T.astype(np.float32)
    for count in (0, 1, 9, 1000):
        indices = np.random.default_rng(count).integers(0, 300, count)
        np.testing.assert_array_equal(run_matrix_op("QuantizedRows", matrix, indices), rows[indices])


@pytest.mark.parametrize("index", [-1, 20, 2**40])
def test_an_index_outside_the_matrix_is_refused(index: int) -> None:
    matrix = Matrix.random(Shape(K=32, N=20), seed=0, zero_points=False)
    with pytest.raises(Exception, match=rf"QuantizedRows: index {index} is outside \[0, 20\)"):
        run_matrix_op("QuantizedRows", matrix, np.array([3, index]))
