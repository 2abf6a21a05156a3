"""Blocks of 4 bits find the grid that weights lie on, and lose little on weights without one."""

import numpy as np
import pytest
from numpy.typing import NDArray

from edge_rag.runtime.lowering.weight_packing import dequantize, quantize
from edge_rag.runtime.quantization.blocks import BLOCK, fit_rows, round_rows

Floats = NDArray[np.float32]
RANDOM = np.random.default_rng(11)


def on_a_grid(outputs: int, inputs: int) -> Floats:
    """Returns weights that were rounded to 16 values a block, as those of a Q4_1 file."""
    shape = (outputs, inputs // BLOCK, 1)
    scales = RANDOM.uniform(0.02, 0.05, shape)
    values = RANDOM.integers(0, 16, (outputs, inputs // BLOCK, BLOCK))
    return (values * scales - scales * RANDOM.uniform(5, 10, shape)).reshape(outputs, inputs).astype(np.float32)


def related(inputs: int, tokens: int) -> Floats:
    mixed = RANDOM.normal(size=(tokens, inputs // 4)) @ RANDOM.normal(size=(inputs // 4, inputs))
    return (mixed * RANDOM.lognormal(0, 1, inputs)).astype(np.float32)


def relative(difference: Floats, weights: Floats) -> float:
    return float(np.linalg.norm(difference) / np.linalg.norm(weights))


def test_a_hidden_grid_is_found() -> None:
    weights = on_a_grid(48, 128)
    found, errors = fit_rows(weights)
    coded = relative(found.weights - weights, weights)
    assert coded < 0.012  # of which all is the rounding of scales and minima to bytes
    assert coded < relative(dequantize(quantize(weights.T, 4, BLOCK)).T - weights, weights) / 5
    np.testing.assert_allclose(errors, np.square(found.weights - weights).sum(axis=1), rtol=1e-3)


def test_the_matrix_of_the_operators_holds_the_same_weights_in_little_more_than_four_and_a_half_bits() -> None:
    weights = RANDOM.normal(size=(20, 96)).astype(np.float32)
    found, _ = fit_rows(weights)
    matrix = found.matrix
    np.testing.assert_allclose(dequantize(matrix).T, found.weights, atol=1e-6)
    assert matrix.form.bits == 4
    assert matrix.scales.dtype == np.uint8
    assert matrix.minima is not None
    assert matrix.minima.dtype == np.uint8


def test_weights_without_a_grid_lose_less_than_symmetric_rounding_does() -> None:
    weights = RANDOM.normal(size=(64, 256)).astype(np.float32)
    found, _ = fit_rows(weights)
    plain = relative(dequantize(quantize(weights.T, 4, BLOCK)).T - weights, weights)
    assert relative(found.weights - weights, weights) < 0.9 * plain


def test_compensation_lowers_the_error_of_products_with_inputs_that_were_not_seen() -> None:
    inputs = related(128, 1200)
    seen, unseen = inputs[:800], inputs[800:]
    weights = RANDOM.normal(size=(64, 128)).astype(np.float32)
    moments = seen.T @ seen / np.float32(len(seen))
    alone, compensated = fit_rows(weights)[0], fit_rows(weights, moments)[0]
    before, after = (np.square(unseen @ (each.weights - weights).T).mean() for each in (alone, compensated))
    assert after < 0.6 * before


def test_compensation_leaves_a_hidden_grid_alone_where_that_is_better() -> None:
    weights = on_a_grid(32, 128)
    inputs = related(128, 400)
    moments = inputs.T @ inputs / np.float32(len(inputs))
    found, errors = fit_rows(weights, moments)
    assert relative(found.weights - weights, weights) < 0.02
    energy = np.square(inputs @ weights.T).mean(axis=0)
    assert (errors <= energy * 1e-3).all()


@pytest.mark.parametrize("inputs", [32, 40, 96])
def test_any_number_of_inputs_is_quantized(inputs: int) -> None:
    weights = RANDOM.normal(size=(5, inputs)).astype(np.float32)
    moments = np.eye(inputs, dtype=np.float32)
    assert relative(fit_rows(weights, moments)[0].weights - weights, weights) < 0.12
    assert relative(dequantize(round_rows(weights)).T - weights, weights) < 0.012


@pytest.mark.parametrize("value", [0.0, 0.25, -3.0])
def test_constant_blocks_are_kept(value: float) -> None:
    weights = np.full((3, 64), value, np.float32)
    np.testing.assert_allclose(fit_rows(weights)[0].weights, weights, atol=abs(value) / 100)
    np.testing.assert_allclose(dequantize(round_rows(weights)).T, weights, atol=abs(value) / 100)


def test_blocks_above_zero_are_kept_within_a_step() -> None:
    weights = RANDOM.uniform(1, 2, size=(4, 64)).astype(np.float32)
    assert np.abs(fit_rows(weights)[0].weights - weights).max() < 0.14
