from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edge_rag.runtime.encoder.batching import padded_width, plan_batches

LENGTHS = st.lists(st.integers(1, 300), max_size=60)


@given(LENGTHS, st.integers(1, 4096))
def test_every_sequence_is_in_exactly_one_batch_and_fits(lengths: list[int], batch_tokens: int) -> None:
    batches = plan_batches(lengths, batch_tokens)
    assert sorted(row for batch in batches for row in batch.rows) == list(range(len(lengths)))
    for batch in batches:
        assert all(lengths[row] <= batch.width for row in batch.rows)
        assert len(batch.rows) == 1 or len(batch.rows) * batch.width <= batch_tokens


@given(LENGTHS)
def test_a_sequence_is_padded_alike_whoever_its_neighbours_are(lengths: list[int]) -> None:
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
