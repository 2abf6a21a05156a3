"""Weights read from blocks are those that ggml's own reader gives."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.runtime.gguf.blocks import read_blocks, read_floats
from edge_rag.runtime.gguf.file import TensorType

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
    assert found.scales.shape == found.minima.shape == (3, 2 * form.block_elements // found.block_size)
