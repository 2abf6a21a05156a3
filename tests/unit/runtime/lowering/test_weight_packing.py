"""Packing moves weights about and changes none of them."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edge_rag.runtime.lowering.weight_packing import (
    BlockFormat,
    QuantizedMatrix,
    alternate,
    beside,
    dequantize,
    operator_inputs,
    pack,
    packed_of_inputs,
    quantize,
    quantize_to_lowest,
    unpack,
    with_zero_points,
)
from tests.support.examples import examples

FORMATS = st.builds(
    BlockFormat,
    rows=st.integers(1, 70),
    columns=st.integers(1, 50),
    bits=st.sampled_from([4, 8]),
    block_size=st.sampled_from([8, 16, 24, 32, 128]),
)


@st.composite
def matrices(draw: st.DrawFn) -> QuantizedMatrix:
    form = draw(FORMATS)
    random = np.random.default_rng(draw(st.integers(0, 1000)))
    values = random.integers(0, 1 << form.bits, (form.rows, form.columns), np.uint8)
    scales = random.random((form.blocks, form.columns), np.float32) + np.float32(0.1)
    points = random.integers(0, 1 << form.bits, scales.shape, np.uint8) if draw(st.booleans()) else None
    return QuantizedMatrix(form, values, scales, points)


@st.composite
def compact_matrices(draw: st.DrawFn) -> QuantizedMatrix:
    """Matrices with scales in fewer bytes, or with minima, or both."""
    form = draw(FORMATS)
    random = np.random.default_rng(draw(st.integers(0, 1000)))
    values = random.integers(0, 1 << form.bits, (form.rows, form.columns), np.uint8)
    shape = (form.blocks, form.columns)
    minima = draw(st.booleans())
    if draw(st.booleans()):
        kind = draw(st.sampled_from([np.float32, np.float16]))
        scales, least = (random.uniform(low, 1, shape).astype(kind) for low in (0.1, -1))
        return QuantizedMatrix(form, values, scales, minima=least if minima else None)
    groups = draw(st.sampled_from([n for n in range(1, form.blocks + 1) if form.blocks % n == 0]))
    codes = [random.integers(0, 256, shape, np.uint8) for _ in range(2)]
    factors = [random.uniform(low, 1, (groups, form.columns)).astype(np.float32) for low in (0.1, -1)]
    return QuantizedMatrix(
        form, values, codes[0], None, codes[1] if minima else None, factors[0], factors[1] if minima else None
    )


def assert_same(found: QuantizedMatrix, expected: QuantizedMatrix) -> None:
    assert found.layout == expected.layout
    for field in fields(expected):
        np.testing.assert_array_equal(getattr(found, field.name), getattr(expected, field.name))


@given(matrix=matrices() | compact_matrices())
def test_unpacking_inverts_packing(matrix: QuantizedMatrix) -> None:
    assert_same(unpack(pack(matrix)), matrix)


@given(matrix=matrices() | compact_matrices())
def test_an_operators_inputs_give_the_matrix_again(matrix: QuantizedMatrix) -> None:
    packed = pack(matrix)
    inputs = operator_inputs({kind: f"w.{kind}" for kind in packed.tensors})
    assert inputs[:2] == ["w.packed", "w.scales"]
    assert inputs[-1]
    stored = {f"w.{kind}": values.reshape(-1) for kind, values in packed.tensors.items()}
    assert_same(unpack(packed_of_inputs(matrix.form, inputs, stored.__getitem__)), matrix)


@given(matrix=compact_matrices())
def test_matrices_are_columns_of_one_beside_each_other(matrix: QuantizedMatrix) -> None:
    found = dequantize(beside([matrix, matrix]))
    np.testing.assert_array_equal(found, np.concatenate([dequantize(matrix)] * 2, axis=1))


def test_matrices_that_are_stored_in_other_ways_cannot_be_columns_of_one() -> None:
    one = quantize(np.ones((8, 16), np.float32), 8, 8)
    other = replace(one, scales=one.scales.astype(np.float16))
    with pytest.raises(ValueError, match="cannot be columns of one"):
        beside([one, other])
    with pytest.raises(ValueError, match="alternate"):
        alternate(pack(one), pack(other))


@given(matrix=compact_matrices())
def test_minima_become_zero_points_with_an_error_of_a_step(matrix: QuantizedMatrix) -> None:
    found, expected = with_zero_points(matrix), dequantize(matrix)
    assert found.scales.dtype == np.float32
    assert found.minima is None
    if matrix.minima is None:
        return np.testing.assert_array_equal(dequantize(found), expected)
    assert found.form.bits == 8
    steps = np.repeat(found.scales, found.form.block_size, axis=0)[: found.form.rows]
    return np.testing.assert_array_less(np.abs(dequantize(found) - expected), 1.01 * steps + 1e-6)


@given(matrix=matrices() | compact_matrices())
def test_gate_and_up_alternate_by_panels(matrix: QuantizedMatrix) -> None:
    whole = replace(matrix.form, columns=pack(matrix).form.panels * 16)
    gate = replace(pack(matrix), form=whole)
    stored = {field.name: getattr(gate, field.name) for field in fields(gate) if field.name != "form"}
    up = replace(gate, **{name: values[::-1] for name, values in stored.items() if values is not None})
    both = alternate(gate, up)
    assert both.form.columns == 2 * whole.columns
    assert both.tensors.keys() == gate.tensors.keys()
    for ending, values in both.tensors.items():
        np.testing.assert_array_equal(values[0::2], gate.tensors[ending])
        np.testing.assert_array_equal(values[1::2], up.tensors[ending])


@settings(max_examples=20)
@given(matrix=matrices(), data=st.data())
def test_every_weight_is_where_the_layout_puts_it(matrix: QuantizedMatrix, data: st.DataObject) -> None:
    form, packed = matrix.form, pack(matrix)
    k, n = data.draw(st.integers(0, form.rows - 1)), data.draw(st.integers(0, form.columns - 1))
    panel, lane = divmod(n, 16)
    if form.bits == 8:
        found = packed.weights[panel, k // 4 * 64 + lane * 4 + k % 4]
    else:
        byte = packed.weights[panel, k // 8 * 64 + lane * 4 + k % 4]
        found = byte >> 4 if k % 8 >= 4 else byte & 15
    assert found == matrix.values[k, n]
    assert packed.scales[panel, k // form.block_size, lane] == matrix.scales[k // form.block_size, n]


@given(matrix=matrices())
def test_panel_padding_has_the_value_0(matrix: QuantizedMatrix) -> None:
    form, packed = matrix.form, pack(matrix)
    whole = BlockFormat(-(-form.rows // 8) * 8, form.panels * 16, form.bits, form.block_size)
    last = (whole.rows - 1) // form.block_size == form.blocks - 1
    if last:  # else the fill lies in a block that has no scale of its own
        filled = dequantize(unpack(type(packed)(whole, packed.weights, packed.scales, packed.zero_points)))
        np.testing.assert_array_equal(filled[form.rows :], 0)
        np.testing.assert_array_equal(filled[:, form.columns :], 0)


@pytest.mark.parametrize("bits", [4, 8])
def test_a_matrix_of_many_columns_is_packed_in_pieces_that_fit_together(bits: int) -> None:
    form = BlockFormat(24, 9001, bits, 16)
    random = np.random.default_rng(0)
    values = random.integers(0, 1 << bits, (24, 9001), np.uint8)
    matrix = QuantizedMatrix(form, values, random.random((2, 9001), np.float32))
    assert_same(unpack(pack(matrix)), matrix)


def test_matrices_that_do_not_fill_their_panels_cannot_alternate() -> None:
    matrix = pack(quantize(np.ones((8, 20), np.float32), 8, 8))
    with pytest.raises(ValueError, match="alternate"):
        alternate(matrix, matrix)


@settings(max_examples=examples(30))
@given(form=FORMATS, seed=st.integers(0, 1000))
def test_quantizing_is_off_by_at_most_half_a_step(form: BlockFormat, seed: int) -> None:
    weights = np.random.default_rng(seed).standard_normal((form.rows, form.columns)).astype(np.float32)
    weights[:, 0] = 0
    matrix = quantize(weights, form.bits, form.block_size)
    error = np.abs(dequantize(matrix) - weights)
    steps: NDArray[np.float32] = np.repeat(matrix.scales, form.block_size, axis=0)[: form.rows]
    assert (error <= 0.5001 * steps).all()


@settings(max_examples=examples(30))
@given(form=FORMATS, seed=st.integers(0, 1000))
def test_weights_that_were_quantized_to_the_lowest_value_keep_their_integers(form: BlockFormat, seed: int) -> None:
    random = np.random.default_rng(seed)
    weights = random.standard_normal((form.rows, form.columns)).astype(np.float32)
    weights[:, 0] = 0
    once = quantize_to_lowest(weights, form.bits, form.block_size)
    steps = np.repeat(once.scales, form.block_size, axis=0)[: form.rows]
    assert (np.abs(dequantize(once) - weights) <= 1.0001 * np.abs(steps)).all()
    rounded = QuantizedMatrix(form, once.values, once.scales.astype(np.float16).astype(np.float32))
    assert_same(quantize_to_lowest(dequantize(rounded), form.bits, form.block_size), rounded)
    assert (once.values[:, 1:].min(axis=0) == 0).all()


def test_one_scale_a_column_is_the_columns_largest_weight_over_the_largest_value() -> None:
    weights = np.array([[1.0, -3.0], [-2.0, 0.5], [0.0, 1.5]], np.float32)
    matrix = quantize(weights, 8, 64)
    np.testing.assert_allclose(matrix.scales, [[2 / 127, 3 / 127]], rtol=1e-6)
    np.testing.assert_array_equal(matrix.values, [[192, 1], [1, 149], [128, 192]])


@pytest.mark.parametrize(
    ("rows", "columns", "bits", "block"), [(0, 1, 4, 8), (1, 0, 4, 8), (1, 1, 2, 8), (1, 1, 4, 12)]
)
def test_a_format_the_operators_do_not_know_is_refused(rows: int, columns: int, bits: int, block: int) -> None:
    with pytest.raises(ValueError, match="no packed form"):
        BlockFormat(rows, columns, bits, block)
