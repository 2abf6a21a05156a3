"""Quantized decoders: keys balanced without changing the function, and bits given where they save most."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from edge_rag.model_store.convert.comparison import compare
from edge_rag.runtime.checkpoint.architectures import describe_checkpoint
from edge_rag.runtime.checkpoint.weights import CheckpointWeights
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.lowering.decoder_graph import DecoderDescription, write_decoder
from edge_rag.runtime.lowering.reference_decoder import Floats, observe_inputs, reference_logits
from edge_rag.runtime.lowering.verification import teacher_forced_logits
from edge_rag.runtime.lowering.weight_packing import pack
from edge_rag.runtime.quantization.blocks import FITTING_BYTES
from edge_rag.runtime.quantization.fitting import (
    BalancedWeights,
    FittedDecoder,
    MixedWeights,
    Unit,
    key_factors,
    measured_costs,
    wide_units,
)
from tests.synthetic.tiny_checkpoint import write_checkpoint
from tests.synthetic.tiny_gguf import HEAD_SIZE, KV_HEADS, LAYERS, VOCABULARY, tiny_model

TEXT = np.random.default_rng(3).integers(3, len(VOCABULARY), 60)
CALIBRATION = [np.random.default_rng(4).integers(3, len(VOCABULARY), 120)]
FACTOR = 32.0


def opened(name: str, folder: Path) -> tuple[DecoderDescription, CheckpointWeights]:
    write_checkpoint(folder / "tiny", name, tiny_model(name))
    description = describe_checkpoint(folder / "tiny", 256)
    return description, CheckpointWeights(folder / "tiny", description)


def fitting(name: str, folder: Path) -> tuple[DecoderDescription, CheckpointWeights, FittedDecoder]:
    description, weights = opened(name, folder)
    (folder / "fitted").mkdir()
    return description, weights, FittedDecoder(description, weights, folder / "fitted")


def stretched(description: DecoderDescription, weights: CheckpointWeights) -> BalancedWeights:
    factors = np.ones((KV_HEADS, HEAD_SIZE), np.float32)
    factors[:, [3, 3 + HEAD_SIZE // 2]] = FACTOR
    return BalancedWeights(weights, description, dict.fromkeys(range(LAYERS), factors))


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "phi3", "smollm3"])
def test_balancing_keeps_the_function_and_undoes_a_large_pair(name: str, tmp_path: Path) -> None:
    description, weights = opened(name, tmp_path)
    (expected,) = reference_logits(description, weights, [TEXT])
    large = stretched(description, weights)
    balanced = BalancedWeights(large, description, key_factors(description, large, CALIBRATION))
    for model in (large, balanced):
        (found,) = reference_logits(description, model, [TEXT])
        np.testing.assert_allclose(found, expected, atol=1e-4 * float(np.abs(expected).max()))
    assert spread(description, large) > FACTOR / 4
    assert spread(description, balanced) < 4


def spread(description: DecoderDescription, weights: BalancedWeights) -> float:
    """Returns how much larger the largest element of a head's keys is than the median one, in the first layer."""
    seen: list[Floats] = []

    def observe(name: str, inputs: list[Floats]) -> None:
        if name == "0.keys":
            seen.extend(inputs)

    observe_inputs(description, weights, [TEXT], observe)
    sizes = np.abs(seen[0]).max(axis=1)
    return float((sizes.max(axis=1) / np.median(sizes, axis=1)).max())


def test_four_bits_eight_bits_and_both_agree_with_the_weights_the_more_bits_the_better(tmp_path: Path) -> None:
    description, weights, fitted = fitting("llama", tmp_path)
    reported: list[str] = []
    fitted.fit(CALIBRATION, reported.append)
    assert reported[1:-1] == [f"fitting layer {number} of {LAYERS} to 4 bits" for number in range(1, LAYERS + 1)]
    (expected,) = reference_logits(description, weights, [TEXT])
    every = frozenset(name for unit in fitted.units for name in unit.names)
    half = frozenset(name for name in every if name.endswith(("down", "query", "key", "value")))
    divergences, bits = [], []
    for wide in (frozenset[str](), half, every):
        mixed = MixedWeights(fitted, wide)
        write_decoder(description, mixed, tmp_path, {"model.safetensors": "0" * 64})
        found = teacher_forced_logits(PagedDecoder.open(tmp_path, 2), TEXT, TEXT.size)
        divergences.append(compare(expected, found).divergence)
        bits.append(mixed.bits_per_weight)
    assert divergences == sorted(divergences, reverse=True)
    assert divergences[-1] < 0.01
    assert bits == sorted(bits)
    assert 4.5 < bits[0] < 5.1
    assert 8.25 < bits[-1] < 8.6


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_frequent_tokens_have_eight_bits_within_the_budget(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge_rag.runtime.quantization.fitting.NARROW_BITS", 5.2)
    description, weights, fitted = fitting(name, tmp_path)
    fitted.fit([CALIBRATION[0] % 64], lambda line: None)
    frequent = fitted.frequent
    assert 0 < frequent <= len(VOCABULARY) // 4
    assert frequent % 16 == 0
    mixed = MixedWeights(fitted, frozenset())
    assert mixed.bits_per_weight <= 5.2
    (expected,) = reference_logits(description, weights, [TEXT % 64])
    write_decoder(description, mixed, tmp_path, {"model.safetensors": "0" * 64})
    split = teacher_forced_logits(PagedDecoder.open(tmp_path, 2), TEXT % 64, TEXT.size)
    fitted.frequent = 0
    write_decoder(description, mixed, tmp_path, {"model.safetensors": "0" * 64})
    narrow = teacher_forced_logits(PagedDecoder.open(tmp_path, 2), TEXT % 64, TEXT.size)
    errors = [np.square(found - expected).mean(axis=0) for found in (split, narrow)]
    assert errors[0][:frequent].mean() < errors[1][:frequent].mean()
    assert compare(expected, split).divergence < compare(expected, narrow).divergence


def test_first_tokens_that_texts_do_not_use_get_no_more_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge_rag.runtime.quantization.fitting.NARROW_BITS", 5.2)
    *_, fitted = fitting("llama", tmp_path)
    fitted.fit([np.full(50, len(VOCABULARY) - 1)], lambda line: None)
    assert fitted.frequent == 0


def test_measured_costs_cover_every_unit_and_add_up_to_what_a_kind_costs(tmp_path: Path) -> None:
    description, _, fitted = fitting("llama", tmp_path)
    fitted.fit(CALIBRATION, lambda line: None)
    measured = iter(range(1, 100))
    costs = measured_costs(description, fitted, [TEXT[:8]], lambda logits: float(next(measured)), lambda line: None)
    assert set(costs) == {unit.names for unit in fitted.units}
    assert sum(costs.values()) == pytest.approx(1 + 2 + 3 + 4 + 5 + 6)
    assert all(cost > 0 for cost in costs.values())


def test_bits_go_where_they_save_most_until_enough_is_saved() -> None:
    units = [Unit(("large",), 1000), Unit(("small",), 10), Unit(("cheap",), 10)]
    costs: dict[tuple[str, ...], float] = {("large",): 0.05, ("small",): 0.04, ("cheap",): 0.001}
    assert wide_units(units, costs, 1.0) == frozenset()
    assert wide_units(units, costs, 0.06) == {"small"}
    assert wide_units(units, costs, 0.0) == {"large", "small", "cheap"}


class LargeMatrix:
    """Weights of which any rows are made when they are read, as from a file that is mapped."""

    def __init__(self, outputs: int, inputs: int) -> None:
        self._shape = (outputs, inputs)
        self._rows = np.random.default_rng(5).normal(size=(1024, inputs)).astype(np.float32)

    def has(self, name: str) -> bool:
        return False

    def shape(self, name: str) -> tuple[int, int]:
        return self._shape

    def vector(self, name: str) -> Floats:
        raise AssertionError(f"{name} is no matrix")

    def rows(self, name: str, rows: NDArray[np.int64] | slice = slice(None)) -> Floats:
        numbers = np.arange(self._shape[0])[rows]
        found: Floats = self._rows[numbers % 1024]
        return found


@pytest.mark.parametrize("wide", [False, True])
def test_memory_for_a_large_matrix_is_a_few_bytes_a_weight_beside_one_part_in_float32(
    wide: bool, tmp_path: Path
) -> None:
    description = describe_checkpoint(write_checkpoint(tmp_path / "tiny", "llama", tiny_model("llama")), 256)
    outputs, inputs = 160_000, 32
    fitted = FittedDecoder(description, LargeMatrix(outputs, inputs), tmp_path)
    tracemalloc.start()
    try:
        if not wide:
            fitted.fit_matrix("embeddings", None)
        matrix = MixedWeights(fitted, frozenset({"embeddings"} if wide else ())).matrix("embeddings")
        pack(matrix)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert outputs * inputs < peak < 4 * outputs * inputs + FITTING_BYTES
