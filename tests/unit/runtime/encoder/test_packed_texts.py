from __future__ import annotations

from itertools import zip_longest

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.runtime.encoder.batching import pack_texts, plan_packs

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
