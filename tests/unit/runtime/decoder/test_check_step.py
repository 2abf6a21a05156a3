"""A step that does not add up never reaches the model."""

import dataclasses

import numpy as np
import pytest

from edge_rag.errors import InferenceFailed
from edge_rag.runtime.decoder.model_input import PackedStep
from edge_rag.runtime.decoder.paged_decoder import check_step


def a_step() -> PackedStep:
    return PackedStep(
        input_ids=np.array([5, 6, 7, 8]),
        positions=np.array([0, 1, 2, 33], np.int32),
        slot_mapping=np.array([96, 97, 98, 33], np.int32),
        cumulative_sequence_lengths=np.array([0, 3, 4], np.int32),
        block_table=np.array([[3, 0], [2, 1]], np.int32),
        logits_indices=np.array([3, 2]),
    )


def check(step: PackedStep) -> None:
    check_step(step, vocabulary_size=10, max_context=60, page_tokens=32, pages=4)


def test_a_consistent_step_passes() -> None:
    check(a_step())


def test_a_step_may_have_no_logits() -> None:
    check(dataclasses.replace(a_step(), logits_indices=np.array([], np.int64)))


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("input_ids", [5, 6, 7, 10], "input_ids has a value outside"),
        ("input_ids", [5, -1, 7, 8], "input_ids has a value outside"),
        ("input_ids", [], "at least one token"),
        ("input_ids", [5, 6, 7], "positions has 4 entries for 3 tokens"),
        ("positions", [0, 1, 2, 60], "positions has a value outside"),
        ("positions", [0, 1, 2, -1], "positions has a value outside"),
        ("positions", [0, 1, 3, 33], "slot_mapping does not match"),
        ("slot_mapping", [96, 97, 98, 34], "slot_mapping does not match"),
        ("slot_mapping", [96, 97, 98], "slot_mapping has 3 entries"),
        ("cumulative_sequence_lengths", [0, 4], "cumulative_sequence_lengths has 2 entries for 2 sequences"),
        ("cumulative_sequence_lengths", [1, 3, 4], "does not rise from 0 to 4"),
        ("cumulative_sequence_lengths", [0, 3, 5], "does not rise from 0 to 4"),
        ("cumulative_sequence_lengths", [0, 5, 4], "does not rise from 0 to 4"),
        ("block_table", [[4, 0], [2, 1]], "block_table has a value outside"),
        ("block_table", [[3, 0], [2, -1]], "block_table has a value outside"),
        ("block_table", [[3], [2]], "positions has a value outside"),
        ("block_table", [3, 2], "block_table is int32 of rank 1"),
        ("logits_indices", [4], "logits_indices has a value outside"),
        ("logits_indices", [-1], "logits_indices has a value outside"),
    ],
)
def test_an_inconsistent_step_is_refused(name: str, values: list[int], message: str) -> None:
    dtype = getattr(a_step(), name).dtype
    with pytest.raises(InferenceFailed, match=message):
        check(dataclasses.replace(a_step(), **{name: np.array(values, dtype)}))


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(PackedStep)])
def test_arrays_of_the_wrong_type_are_refused(name: str) -> None:
    wrong = dataclasses.replace(a_step(), **{name: getattr(a_step(), name).astype(np.int16)})
    with pytest.raises(InferenceFailed, match=f"{name} is int16"):
        check(wrong)


def test_arrays_that_are_not_contiguous_are_refused() -> None:
    with pytest.raises(InferenceFailed, match="positions is int32"):
        check(dataclasses.replace(a_step(), positions=np.arange(8, dtype=np.int32)[::2]))
