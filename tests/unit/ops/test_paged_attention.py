"""Every kernel build of the op against numpy: the bytes in the pages exactly, the attention closely, in any batch."""

import dataclasses
import os
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.ops.attention_case import Conversation, Floats, Heads, Pages, Step
from tests.unit.ops.attention_reference import attention_over_pages, expected_store, take_apart, unquantized_attention
from tests.unit.ops.op_graph import BUILD_VARIABLE, LIBRARY_VARIABLE, builds_by_default_first, run_op

HEAD_SIZES = (8, 16, 24, 32, 64, 80, 96, 128, 256)


@pytest.fixture(params=builds_by_default_first(), scope="module", autouse=True)
def _build(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(BUILD_VARIABLE, request.param)
        yield


@st.composite
def layers(draw: st.DrawFn) -> Heads:
    head_size = draw(st.sampled_from(HEAD_SIZES))
    kv_heads = draw(st.integers(1, 3))
    return Heads(
        query_heads=kv_heads * draw(st.sampled_from((1, 2, 3, 5, 7, 8))),
        kv_heads=kv_heads,
        head_size=head_size,
        rotary_pairs=draw(st.sampled_from((head_size // 2, head_size // 4, 0))),
        page_tokens=draw(st.sampled_from((16, 32, 64))),
        packed=draw(st.booleans()),
        scale=draw(st.sampled_from((head_size**-0.5, 0.3))),
        window=draw(st.sampled_from((-1, -1, -1, 1, 9, 32, 100))),
        softcap=draw(st.sampled_from((0.0, 0.0, 2.0, 50.0))),
    )


def assert_attends(found: Floats, heads: Heads, step: Step, pages: Pages) -> None:
    """Within a tenth of what INT8 keys and values cost, for every token: queries and weights are of 15 bits."""
    assert np.isfinite(found).all()
    errors = np.linalg.norm(found - attention_over_pages(heads, step, pages), axis=1)
    assert (errors <= 1e-3 * np.linalg.norm(attention_over_pages(heads, step, pages, magnitudes=True), axis=1)).all()


@settings(
    max_examples=10 if LIBRARY_VARIABLE in os.environ else 40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    heads=layers(),
    steps=st.lists(st.dictionaries(st.integers(0, 2), st.integers(1, 40), min_size=1), min_size=1, max_size=4),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_steps_over_any_pages_match_the_reference(heads: Heads, steps: list[dict[int, int]], seed: int) -> None:
    conversation = Conversation.start(heads, sequences=3, context=160, seed=seed)
    for counts in steps:
        step = conversation.step(counts)
        output = run_op(heads, step, conversation.pages)
        assert_attends(output, heads, step, conversation.pages)


@pytest.mark.parametrize("head_size", HEAD_SIZES)
def test_what_is_stored_is_the_rotated_key_and_the_value_at_int8_to_the_last_bit(head_size: int) -> None:
    heads = Heads(head_size=head_size, rotary_pairs=head_size // 2)
    conversation = Conversation.start(heads, sequences=2, context=100, seed=head_size)
    step = conversation.step({1: 37, 0: 64})
    run_op(heads, step, conversation.pages)
    stored = take_apart(heads, conversation.pages)
    page, offset = np.divmod(step.slot_mapping, heads.page_tokens)
    found = (
        stored.key[page, :, offset],
        stored.key_scale[page, :, offset],
        stored.value[page, :, offset],
        stored.value_scale[page, :, offset],
    )
    for array, expected in zip(found, expected_store(step), strict=True):
        np.testing.assert_array_equal(array, expected)


def test_nothing_is_written_outside_the_slots_of_the_step() -> None:
    heads = Heads()
    conversation = Conversation.start(heads, sequences=2, context=96, seed=3)
    before = take_apart(heads, conversation.pages.copy())
    step = conversation.step({0: 21, 1: 45})
    run_op(heads, step, conversation.pages)
    after = take_apart(heads, conversation.pages)
    untouched = np.ones((len(conversation.pages), heads.page_tokens), bool)
    untouched[np.divmod(step.slot_mapping, heads.page_tokens)] = False
    for name in ("key", "key_scale", "value", "value_scale"):
        old, new = (np.moveaxis(getattr(stored, name), 2, 1)[untouched] for stored in (before, after))
        assert old.tobytes() == new.tobytes()


@pytest.mark.parametrize("context", [1, 2, 4096])
def test_a_single_token_attends_a_context_of_any_length(context: int) -> None:
    heads = Heads(query_heads=7, kv_heads=1, scale=0.5)
    conversation = Conversation.start(heads, sequences=1, context=context, seed=context)
    if context > 1:
        run_op(heads, conversation.step({0: context - 1}), conversation.pages)
    step = conversation.step({0: 1})
    output = run_op(heads, step, conversation.pages)
    assert_attends(output, heads, step, conversation.pages)


@pytest.mark.parametrize("head_size", [64, 80, 96, 128, 256])
def test_int8_moves_attention_by_less_than_two_percent(head_size: int) -> None:
    heads = Heads(query_heads=6, kv_heads=3, head_size=head_size, rotary_pairs=head_size // 2, scale=head_size**-0.5)
    conversation = Conversation.start(heads, sequences=2, context=300, seed=1)
    run_op(heads, conversation.step({0: 290, 1: 100}), conversation.pages)
    step = conversation.step({1: 9, 0: 3})
    output = run_op(heads, step, conversation.pages)
    exact = unquantized_attention(conversation, step, [1, 0])
    assert 0 < np.linalg.norm(output - exact) < 0.02 * np.linalg.norm(exact)


def test_large_scores_neither_overflow_nor_lose_the_largest() -> None:
    heads = Heads(scale=50.0)
    conversation = Conversation.start(heads, sequences=1, context=70, seed=5)
    step = conversation.step({0: 70})
    output = run_op(heads, step, conversation.pages)
    expected = attention_over_pages(heads, step, conversation.pages)
    assert np.linalg.norm(output - expected) < 5e-3 * np.linalg.norm(expected)  # scores of hundreds, from 15 bits


@pytest.mark.parametrize(
    ("context", "window", "softcap"), [(90, -1, 0.0), (700, -1, 0.0), (90, 20, 0.0), (700, 300, 2.0), (1200, 515, 0.0)]
)
def test_a_result_is_the_same_bits_alone_in_a_batch_and_in_chunks(context: int, window: int, softcap: float) -> None:
    heads = Heads(query_heads=6, kv_heads=2, window=window, softcap=softcap)

    def attend(schedule: list[dict[int, int]]) -> dict[tuple[int, int], bytes]:
        pages, rows = _pages(), {}
        done = dict.fromkeys(whole, 0)
        for counts in schedule:
            parts = [_part(whole[s], done[s], done[s] + n) for s, n in counts.items()]
            output = run_op(heads, _joined(parts), pages)
            at = 0
            for sequence, count in counts.items():
                for token in range(count):
                    rows[sequence, done[sequence] + token] = output[at + token].tobytes()
                done[sequence] += count
                at += count
        return rows

    conversation = Conversation.start(heads, sequences=2, context=context, seed=9)

    def _pages() -> Pages:
        return np.zeros_like(conversation.pages)

    whole = {sequence: conversation.step({sequence: context}) for sequence in (0, 1)}
    alone = attend([{0: context}, {1: context}])
    assert attend([{0: context, 1: context}]) == alone
    rest = context - 89
    assert attend([{1: 17, 0: 1}, {0: 40}, {0: 1, 1: 33}, {1: 39, 0: 46}, {0: rest, 1: rest}, {0: 1}]) == alone
    most, both = context - 5, {0: 1, 1: 1}
    assert attend([{0: most}, {1: most}, {0: 1}, {1: 1}, both, both, {1: 2, 0: 1}, {0: 1}]) == alone


def _part(step: Step, begin: int, end: int) -> Step:
    names = ("query", "key", "value", "positions", "slot_mapping")
    cut = {name: getattr(step, name)[begin:end] for name in names}
    return dataclasses.replace(step, **cut, cumulative_sequence_lengths=np.array([0, end - begin], np.int32))


def _joined(parts: list[Step]) -> Step:
    lengths = np.cumsum([0, *(len(part.positions) for part in parts)]).astype(np.int32)
    whole = dataclasses.replace(parts[0], cumulative_sequence_lengths=lengths)
    for name in ("query", "key", "value", "positions", "slot_mapping", "block_table"):
        setattr(whole, name, np.concatenate([getattr(part, name) for part in parts]))
    return whole


def test_later_tokens_of_the_same_chunk_are_not_seen() -> None:
    heads = Heads()
    conversation = Conversation.start(heads, sequences=1, context=48, seed=11)
    step = conversation.step({0: 48})
    first = run_op(heads, step, conversation.pages)
    step.key[30:] = 100.0
    step.value[30:] = 100.0
    second = run_op(heads, step, conversation.pages)
    np.testing.assert_array_equal(first[:30], second[:30])
    assert not np.array_equal(first[30:], second[30:])


def test_scattered_positions_can_be_computed_again() -> None:
    heads = Heads()
    conversation = Conversation.start(heads, sequences=1, context=64, seed=13)
    step = conversation.step({0: 64})
    whole = run_op(heads, step, conversation.pages)
    chosen = np.array([50, 3, 31, 32])
    again = dataclasses.replace(
        step,
        **{name: getattr(step, name)[chosen] for name in ("query", "key", "value", "positions", "slot_mapping")},
        cumulative_sequence_lengths=np.array([0, 4], np.int32),
    )
    np.testing.assert_array_equal(run_op(heads, again, conversation.pages), whole[chosen])


def test_a_key_that_is_not_a_number_shows_in_its_own_sequence_and_in_no_other() -> None:
    heads = Heads()
    conversation = Conversation.start(heads, sequences=2, context=40, seed=17)
    step = conversation.step({0: 40, 1: 40})
    clean = run_op(heads, step, conversation.pages)
    step.key[20, 0, 5] = np.nan
    step.value[25, 1, 5] = np.inf
    output = run_op(heads, step, conversation.pages).reshape(80, heads.query_heads, heads.head_size)
    assert np.isnan(output[20:40, :2]).all()
    assert np.isnan(output[25:40, 2:]).all()
    clean = clean.reshape(output.shape)
    np.testing.assert_array_equal(output[:20], clean[:20])
    np.testing.assert_array_equal(output[40:], clean[40:])


def test_rows_of_zeros_are_stored_and_attended() -> None:
    heads = Heads()
    conversation = Conversation.start(heads, sequences=1, context=8, seed=19)
    step = conversation.step({0: 8})
    step.key[:], step.value[:] = 0.0, 1e-38
    np.testing.assert_array_equal(run_op(heads, step, conversation.pages), np.zeros((8, 256), np.float32))


def test_a_step_without_tokens_does_nothing() -> None:
    heads = Heads()
    conversation = Conversation.start(heads, sequences=1, context=8, seed=23)
    step = _part(conversation.step({0: 1}), 0, 0)
    before = conversation.pages.copy()
    assert run_op(heads, step, conversation.pages).shape == (0, 256)
    np.testing.assert_array_equal(conversation.pages, before)
