from itertools import zip_longest

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.runtime.encoder.tokenizer import pack_texts, padded_width, plan_batches, plan_packs

LENGTHS = st.lists(st.integers(1, 300), max_size=60)


@given(LENGTHS, st.integers(1, 4096))
def test_every_sequence_is_in_exactly_one_batch_and_fits(lengths: list[int], batch_tokens: int) -> None:
    batches = plan_batches(lengths, batch_tokens)
    assert sorted(row for batch in batches for row in batch.rows) == list(range(len(lengths)))
    for batch in batches:
        assert all(lengths[row] <= batch.width for row in batch.rows)
        assert len(batch.rows) == 1 or len(batch.rows) * batch.width <= batch_tokens


@given(LENGTHS)
def test_the_padding_of_a_sequence_does_not_depend_on_its_neighbours(lengths: list[int]) -> None:
    for batch in plan_batches(lengths, 2048):
        for row in batch.rows:
            (alone,) = plan_batches([lengths[row]], 2048)
            assert batch.width == alone.width == padded_width(lengths[row])


def test_mixed_lengths_are_padded_by_less_than_a_tenth() -> None:
    lengths = list(range(8, 257))
    padded = sum(batch.width * len(batch.rows) for batch in plan_batches(lengths, 2048))
    assert padded < 1.1 * sum(lengths)
    questions = list(range(10, 26))
    assert sum(map(padded_width, questions)) < 1.1 * sum(questions)


TEXTS = st.lists(st.lists(st.integers(0, 40_000), max_size=30), min_size=1, max_size=12)


@given(TEXTS)
def test_every_token_keeps_its_place_in_its_text(texts: list[list[int]]) -> None:
    packed = pack_texts(texts)
    ends = packed.cumulative_sequence_lengths
    assert ends[0] == 0
    assert ends[-1] == len(packed.input_ids) == len(packed.positions)
    for text, begin, end in zip(texts, ends[:-1], ends[1:], strict=True):
        assert packed.input_ids[begin:end].tolist() == text
        assert packed.positions[begin:end].tolist() == list(range(len(text)))
    assert [array.dtype for array in packed.inputs().values()] == [np.int64, np.int64, np.int32]


@given(st.lists(st.integers(1, 300), max_size=60), st.integers(1, 1000))
def test_runs_hold_all_texts_in_order_and_no_more_tokens_than_allowed(lengths: list[int], most: int) -> None:
    packs = plan_packs(lengths, most)
    assert [text for pack in packs for text in pack] == list(range(len(lengths)))
    for pack, after in zip_longest(packs, packs[1:], fillvalue=range(0)):
        tokens = sum(lengths[text] for text in pack)
        assert len(pack) > 0
        assert tokens <= most or len(pack) == 1
        assert not after or tokens + lengths[after.start] > most
