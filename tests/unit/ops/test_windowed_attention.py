"""Every kernel build where tokens see a window of their context, or scores are capped."""

import dataclasses

import numpy as np
import pytest

from tests.unit.ops.attention_case import Conversation, Heads
from tests.unit.ops.attention_reference import attention_over_pages
from tests.unit.ops.op_graph import run_op
from tests.unit.ops.test_paged_attention import _build, assert_attends  # noqa: F401 - a fixture

SMALL = Heads(query_heads=2, kv_heads=1, head_size=16, rotary_pairs=8, scale=0.25)


# Of a page, a block and a span there are 32, 128 and 512 tokens.
@pytest.mark.parametrize("window", [1, 2, 31, 32, 33, 127, 128, 129, 300, 511, 512, 513, 640])
@pytest.mark.parametrize("softcap", [0.0, 3.0])
def test_windows_that_begin_and_end_at_any_border_match_the_reference(window: int, softcap: float) -> None:
    heads = dataclasses.replace(SMALL, window=window, softcap=softcap)
    conversation = Conversation.start(heads, sequences=2, context=1200, seed=window)
    for counts in ({0: 700}, {0: 1}, {0: 327, 1: 100}, {0: 1, 1: 30}, {0: 130, 1: 1}):
        step = conversation.step(counts)
        output = run_op(heads, step, conversation.pages)
        assert_attends(output, heads, step, conversation.pages)


@pytest.mark.parametrize("window", [40, 129, 600])
def test_what_precedes_the_window_leaves_no_trace_whatever_it_holds(window: int) -> None:
    heads = dataclasses.replace(SMALL, window=window)
    conversation = Conversation.start(heads, sequences=1, context=1300, seed=1)
    run_op(heads, conversation.step({0: 1290}), conversation.pages)
    step = conversation.step({0: 3})
    clean = run_op(heads, step, conversation.pages)
    earlier = conversation.tables[0, : (1291 - window) // heads.page_tokens]
    conversation.pages[earlier] = -1  # all scales are not numbers
    np.testing.assert_array_equal(run_op(heads, step, conversation.pages), clean)
    step.block_table[0, : len(earlier)] = -1
    np.testing.assert_array_equal(run_op(heads, step, conversation.pages), clean)


def test_a_page_that_the_first_token_still_sees_must_be_in_the_table() -> None:
    heads = dataclasses.replace(SMALL, window=40)
    conversation = Conversation.start(heads, sequences=1, context=128, seed=1)
    run_op(heads, conversation.step({0: 100}), conversation.pages)
    step = conversation.step({0: 1})
    step.block_table[0, 1] = -1
    with pytest.raises(Exception, match="page -1 of sequence 0"):
        run_op(heads, step, conversation.pages)


def test_a_window_no_shorter_than_the_context_changes_no_bit() -> None:
    conversation = Conversation.start(SMALL, sequences=1, context=700, seed=3)
    step = conversation.step({0: 700})
    expected = run_op(SMALL, step, conversation.pages)
    for window in (700, 2**40):
        found = run_op(dataclasses.replace(SMALL, window=window), step, conversation.pages)
        np.testing.assert_array_equal(found, expected)


def test_scores_far_beyond_the_cap_still_match_the_reference() -> None:
    heads = dataclasses.replace(SMALL, scale=20.0, softcap=5.0)
    conversation = Conversation.start(heads, sequences=1, context=300, seed=5)
    step = conversation.step({0: 300})
    output = run_op(heads, step, conversation.pages)
    assert_attends(output, heads, step, conversation.pages)
    uncapped = dataclasses.replace(heads, softcap=0.0)
    assert not np.allclose(output, attention_over_pages(uncapped, step, conversation.pages), atol=0.1)
