"""What the engine may rely on, of every implementation of its port ``ModelRunner``."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge_rag.engine.ports import ModelRunner
from edge_rag.errors import InferenceFailed
from edge_rag.runtime.decoder.cuda.decoder import CudaDecoder
from edge_rag.runtime.decoder.model_input import PackedStep
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.decoder.serial_decoder import SerialDecoder
from tests.support.accelerators.cuda import cuda_copy
from tests.support.accelerators.cuda_reference import CudaReference
from tests.support.accelerators.gpu import needs_cuda
from tests.synthetic.tiny_model import FIXTURES, Logits, TokenIds, reference

FOLDER = FIXTURES / "tiny-llama"
KNOWN = reference("tiny-llama")

ALLOWED = 0.05
"""Largest distance from the logits of the original."""

Open = Callable[[Path], ModelRunner]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(lambda folder: PagedDecoder.open(folder, 16), id="paged"),
        pytest.param(lambda folder: SerialDecoder.open(folder, 256), id="serial"),
        pytest.param(lambda folder: CudaReference(folder, 16), id="cuda-on-cores"),
        pytest.param(lambda folder: CudaDecoder.open(folder, 16, {}), id="cuda", marks=needs_cuda),
    ],
)
def runner(request: pytest.FixtureRequest, folder: Path) -> ModelRunner:
    open_runner: Open = request.param
    return open_runner(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model in all its forms."""
    return cuda_copy(FOLDER, tmp_path_factory.mktemp("runners") / FOLDER.name, KNOWN.token_ids)


def step(runner: ModelRunner, token_ids: TokenIds, first: int, last: int, wanted: bool = True) -> PackedStep:
    positions = np.arange(first, last, dtype=np.int32)
    return PackedStep(
        input_ids=token_ids[first:last],
        positions=positions,
        slot_mapping=positions,
        cumulative_sequence_lengths=np.array([0, last - first], np.int32),
        block_table=np.arange(-(-last // runner.page_tokens), dtype=np.int32)[None],
        logits_indices=np.array([last - first - 1] if wanted else [], np.int64),
    )


def logits(runner: ModelRunner, token_ids: TokenIds, cuts: list[int]) -> Logits:
    """Runs a text in pieces that end at the cuts and returns the logits after the last one."""
    for first, last in zip([0, *cuts], cuts, strict=False):
        found = runner.run(step(runner, token_ids, first, last))
        assert found.shape == (1, runner.vocabulary_size)
    row: Logits = found[0].copy()
    return row


def distance(found: Logits, expected: Logits) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected - expected.mean()))


def test_it_says_how_large_it_is(runner: ModelRunner) -> None:
    assert runner.vocabulary_size == KNOWN.logits.shape[1]
    assert runner.end_tokens == frozenset({2})
    assert runner.pages >= 1
    assert 1 <= runner.max_context <= 512
    assert runner.page_tokens * runner.pages >= KNOWN.token_ids.size


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.sets(st.integers(1, 112), min_size=1, max_size=12))
def test_pieces_of_any_sizes_give_the_logits_of_the_original(runner: ModelRunner, cuts: set[int]) -> None:
    ends = sorted(cuts)
    assert distance(logits(runner, KNOWN.token_ids, ends), KNOWN.logits[ends[-1] - 1]) < ALLOWED


def test_a_piece_whose_logits_nobody_wants_gives_none_and_counts(runner: ModelRunner) -> None:
    assert runner.run(step(runner, KNOWN.token_ids, 0, 40, wanted=False)).shape == (0, runner.vocabulary_size)
    found = runner.run(step(runner, KNOWN.token_ids, 40, 41))[0]
    assert distance(found, KNOWN.logits[40]) < ALLOWED


def test_a_sequence_that_takes_anothers_pages_sees_nothing_of_it(runner: ModelRunner) -> None:
    alone = logits(runner, KNOWN.token_ids, [30, 31])
    logits(runner, KNOWN.token_ids[::-1].copy(), [50])
    assert np.array_equal(logits(runner, KNOWN.token_ids, [30, 31]), alone)


def unknown_token(good: PackedStep) -> PackedStep:
    return replace(good, input_ids=good.input_ids + 512)


def beyond_the_context(good: PackedStep) -> PackedStep:
    return replace(good, positions=good.positions + np.int32(100_000))


def page_that_is_not_there(good: PackedStep) -> PackedStep:
    return replace(good, block_table=good.block_table + np.int32(1000))


def empty(good: PackedStep) -> PackedStep:
    return replace(good, input_ids=good.input_ids[:0], positions=good.positions[:0], slot_mapping=good.slot_mapping[:0])


def row_that_is_not_there(good: PackedStep) -> PackedStep:
    return replace(good, logits_indices=good.logits_indices + 1)


@pytest.mark.parametrize(
    "spoil", [unknown_token, beyond_the_context, page_that_is_not_there, empty, row_that_is_not_there]
)
def test_a_step_that_does_not_add_up_is_refused_and_changes_nothing(
    runner: ModelRunner, spoil: Callable[[PackedStep], PackedStep]
) -> None:
    expected = logits(runner, KNOWN.token_ids, [20, 25])
    runner.run(step(runner, KNOWN.token_ids, 0, 20))
    with pytest.raises(InferenceFailed):
        runner.run(spoil(step(runner, KNOWN.token_ids, 20, 25)))
    assert np.array_equal(runner.run(step(runner, KNOWN.token_ids, 20, 25))[0], expected)
