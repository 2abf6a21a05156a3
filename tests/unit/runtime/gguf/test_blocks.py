"""Weights read from blocks are those that ggml's own reader gives."""

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.runtime.gguf.blocks import read_blocks, read_floats
from edge_rag.runtime.gguf.file import TensorType
from edge_rag.runtime.lowering.weight_packing import dequantize, pack, unpack

QUANTIZED = [form for form in TensorType if form.block_elements > 1]


@pytest.mark.parametrize("form", TensorType)
@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 4), blocks=st.integers(1, 5))
def test_every_bit_is_read_as_ggml_reads_it(form: TensorType, seed: int, rows: int, blocks: int) -> None:
    raw = np.random.default_rng(seed).integers(0, 256, (rows, blocks * form.block_bytes), np.uint8)
    with np.errstate(invalid="ignore", over="ignore"):
        expected = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType(form.value))
        found = read_floats(form, raw)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("form", QUANTIZED)
def test_values_scales_and_minima_have_the_stated_ranges(form: TensorType) -> None:
    raw = np.random.default_rng(5).integers(0, 60, (3, 2 * form.block_bytes), np.uint8)
    found = read_blocks(form, raw)
    assert found.values.shape == (3, 2 * form.block_elements)
    assert found.values.max() < 1 << found.bits
    assert found.scales.shape == (3, 2 * form.block_elements // found.block_size)
    assert found.minima is None or found.minima.shape == found.scales.shape
    assert found.is_finite


KEPT_BITS = {
    TensorType.Q4_0: 4.5, TensorType.Q4_1: 5.0, TensorType.Q5_0: 8.5, TensorType.Q5_1: 9.0, TensorType.Q8_0: 8.5,
    TensorType.Q4_K: 4.75, TensorType.Q5_K: 8.75, TensorType.Q6_K: 8.625,
}  # fmt: skip


@pytest.mark.parametrize("form", QUANTIZED)
def test_a_packed_matrix_has_the_files_own_weights_in_few_more_bits(form: TensorType) -> None:
    columns, count = 16, -(-256 // form.block_elements)
    raw = np.random.default_rng(6).integers(0, 60, (columns, count * form.block_bytes), np.uint8)
    packed = pack(read_blocks(form, raw).matrix)
    expected = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType(form.value))
    np.testing.assert_array_equal(dequantize(unpack(packed)).T, expected)
    assert 8 * sum(tensor.nbytes for tensor in packed.tensors.values()) / expected.size == KEPT_BITS[form]


def test_scales_that_are_not_finite_are_noticed() -> None:
    raw = np.zeros((2, 2 * TensorType.Q4_K.block_bytes), np.uint8)
    assert read_blocks(TensorType.Q4_K, raw).is_finite
    raw[1, TensorType.Q4_K.block_bytes + 2 :][:2] = np.array([np.nan], np.float16).view(np.uint8)
    assert not read_blocks(TensorType.Q4_K, raw).is_finite
