"""Whatever is wrong with an input, the op says so and leaves every page as it was."""

from collections.abc import Callable

import numpy as np
import pytest

from edge_rag.errors import ModelError
from tests.unit.ops.attention_case import Conversation, Heads, Step
from tests.unit.ops.op_graph import open_op, run_op

HEADS = Heads(packed=False)
PAGES = 7  # two sequences of two pages, and three that nobody owns


def _put(name: str, index: object, value: float) -> Callable[[Step], None]:
    def change(step: Step) -> None:
        getattr(step, name)[index] = value

    return change


def _feed(name: str, array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Callable[[Step], None]:
    def change(step: Step) -> None:
        step.replace[name] = array

    return change


def _floats(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    return np.zeros(shape, np.float32)


def _integers(*values: int) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    return np.array(values, np.int32)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_put("positions", 3, -1), "position -1 of token 3"),
        (_put("positions", 3, 64), "position 64 of token 3"),
        (_put("positions", 3, 2**31 - 1), "position 2147483647"),
        (_put("slot_mapping", 5, -1), "slot -1 of token 5"),
        (_put("slot_mapping", 5, PAGES * 32), "slot 224 of token 5"),
        (_put("slot_mapping", 5, -(2**31)), "slot -2147483648"),
        (lambda step: _put("slot_mapping", 0, step.slot_mapping[1])(step), "two tokens have the slot"),
        (_put("block_table", (1, 0), -1), "page -1 of sequence 1"),
        (_put("block_table", (0, 1), PAGES), "page 7 of sequence 0"),
        (_put("cumulative_sequence_lengths", 0, 1), "must go from 0"),
        (_put("cumulative_sequence_lengths", 2, 1000), "must go from 0 to 60"),
        (_put("cumulative_sequence_lengths", 1, 61), "falls from 61 to 60|falls from 0 to 61"),
        (_put("cumulative_sequence_lengths", 1, -5), "falls from 0 to -5"),
        (_feed("cumulative_sequence_lengths", _integers()), "cumulative_sequence_lengths has shape"),
        (_feed("cumulative_sequence_lengths", _integers(0, 60)), "block_table has shape"),
        (_feed("block_table", np.zeros((2, 1), np.int32)), "needs 2 pages, block_table has 1"),
        (_feed("block_table", _integers(0, 1)), "block_table has shape"),
        (_feed("positions", _integers(0)), "positions has shape"),
        (_feed("slot_mapping", _integers(*range(61))), "slot_mapping has shape"),
        (_feed("query", _floats(60, 255)), "query has 255 columns"),
        (_feed("query", _floats(60, 4 * 264)), "query has 1056 columns"),
        (_feed("query", _floats(2, 30, 256)), "query has shape"),
        (_feed("query", _floats(60)), "query has shape"),
        (_feed("key", _floats(59, 128)), "key has shape"),
        (_feed("value", _floats(60, 64)), "value has shape"),
        (_feed("cos", _floats(64, 33)), "cos has shape"),
        (_feed("cos", _floats(64)), "cos has shape"),
        (_feed("sin", _floats(63, 32)), "sin has shape"),
        (_feed("pages", np.zeros((7, HEADS.page_bytes - 4), np.int8)), "a page has 8700 bytes, expected 8704"),
        (_feed("pages", np.zeros(7, np.int8)), "pages has shape"),
        (_feed("pages", np.zeros((0, HEADS.page_bytes), np.int8)), r"outside \[0, 0\)"),
    ],
)
def test_a_bad_input_is_refused_and_no_page_changes(spoil: Callable[[Step], None], message: str) -> None:
    conversation = Conversation.start(HEADS, sequences=2, context=64, seed=0)
    assert len(conversation.pages) == PAGES
    step = conversation.step({0: 40, 1: 20})
    spoil(step)
    before = conversation.pages.copy()
    with pytest.raises(Exception, match=message):
        run_op(HEADS, step, conversation.pages)
    np.testing.assert_array_equal(conversation.pages, before)


def test_table_entries_past_the_last_position_are_never_read() -> None:
    conversation = Conversation.start(HEADS, sequences=1, context=64, seed=0)
    step = conversation.step({0: 32})
    step.block_table[0, 1] = -1
    assert np.isfinite(run_op(HEADS, step, conversation.pages)).all()


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        (Heads(query_heads=3, kv_heads=2), "num_heads 3 is not a multiple"),
        (Heads(query_heads=0, kv_heads=0), "num_heads 0"),
        (Heads(page_tokens=8), "page_tokens is 8"),
        (Heads(page_tokens=48), "page_tokens is 48, must be 16, 32 or 64"),
        (Heads(page_tokens=128), "page_tokens is 128"),
        (Heads(page_tokens=-32), "page_tokens is -32"),
        (Heads(window=0), "local_window_size is 0, must be -1 or positive"),
        (Heads(window=-2), "local_window_size is -2"),
        (Heads(softcap=-1.0), "softcap must be finite and not negative"),
        (Heads(softcap=float("inf")), "softcap must be finite"),
        (Heads(softcap=float("nan")), "softcap must be finite"),
    ],
)
def test_attributes_that_make_no_sense_are_refused_when_the_model_is_opened(heads: Heads, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        open_op(heads)
