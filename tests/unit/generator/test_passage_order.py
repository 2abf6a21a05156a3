"""In which order a prompt holds its passages."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.ids import ChunkId, DocumentId
from edge_rag.core.passage import Passage
from edge_rag.core.query import PassageOrder
from edge_rag.generator.prompt.passage_order import (
    FIRST_RENEWAL,
    RENEWAL_INTERVAL,
    PassageArranger,
    PassageKey,
    PassagePopularity,
)


def passage(chunk: int, document: str = "d", start: int | None = None) -> Passage:
    start = 100 * chunk if start is None else start
    return Passage(ChunkId(chunk), DocumentId(document), f"{document}.md", None, start, start + 50, "text")


def key(chunk: int) -> PassageKey:
    return PassageKey("d", chunk, chunk)


def ask(popularity: PassagePopularity, times: int, *chunks: int) -> None:
    for _ in range(times):
        popularity.record(map(key, chunks))


def test_popular_passages_come_first() -> None:
    popularity = PassagePopularity()
    ask(popularity, FIRST_RENEWAL, 3)
    assert popularity.arrange([key(1), key(2), key(3)]) == (2, 0, 1)


def test_the_order_is_stable_between_renewals() -> None:
    popularity = PassagePopularity()
    ask(popularity, FIRST_RENEWAL - 1, 3)
    assert popularity.arrange([key(1), key(3)]) == (0, 1)
    ask(popularity, 1, 3)
    assert popularity.arrange([key(1), key(3)]) == (1, 0)
    ask(popularity, FIRST_RENEWAL - 1, 1)
    assert popularity.arrange([key(1), key(3)]) == (1, 0)


def test_in_the_long_run_renewals_have_a_fixed_interval() -> None:
    popularity, orders = PassagePopularity(half_life=100), []
    for question in range(6 * RENEWAL_INTERVAL):
        ask(popularity, 1, question // RENEWAL_INTERVAL)
        orders.append(popularity.state().order)
    changes = [at for at in range(1, len(orders)) if orders[at] != orders[at - 1]]
    assert changes
    assert all(later - earlier >= RENEWAL_INTERVAL for earlier, later in pairwise(at for at in changes if at > 1024))


def test_equally_popular_passages_keep_document_order() -> None:
    arranger = PassageArranger(PassageOrder.HOT, PassagePopularity())
    found = [passage(4, "b", 0), passage(9, "a", 700), passage(2, "a", 900), passage(1, "b", 300)]
    assert arranger.arrange(found) == (1, 2, 0, 3)


def test_a_small_change_of_popularity_does_not_change_the_order() -> None:
    popularity = PassagePopularity(half_life=1e9)
    ask(popularity, 20, 1)
    ask(popularity, 22, 2)
    ask(popularity, FIRST_RENEWAL - 42, 3)
    assert popularity.arrange([key(3), key(2), key(1)]) == (2, 1, 0)


def test_old_questions_count_less() -> None:
    popularity = PassagePopularity(half_life=10)
    ask(popularity, 40, 2)
    ask(popularity, 88, 3)
    assert popularity.arrange([key(1), key(2), key(3)]) == (2, 0, 1)


def test_of_too_many_passages_the_most_popular_are_kept() -> None:
    popularity = PassagePopularity(max_passages=4)
    for chunk in range(FIRST_RENEWAL):
        ask(popularity, 1, 100, chunk)
    assert len(popularity.state().counts) <= 4
    assert popularity.arrange([key(50), key(100)]) == (1, 0)


@given(st.lists(st.lists(st.integers(0, 8), max_size=4, unique=True), max_size=150))
def test_popularity_continues_from_a_saved_state(questions: list[list[int]]) -> None:
    popularity, resumed = PassagePopularity(), PassagePopularity()
    for question in questions:
        ask(popularity, 1, *question)
    resumed.restore(popularity.state())
    left, found = popularity.state(), resumed.state()
    assert found.order == left.order
    assert found.counts == pytest.approx(left.counts)


@given(st.permutations(range(6)), st.lists(st.integers(0, 5), max_size=60), st.sampled_from(PassageOrder))
def test_every_order_is_a_permutation_and_only_rank_uses_ranks(
    drawn: list[int], asked: list[int], order: PassageOrder
) -> None:
    arranger = PassageArranger(order, PassagePopularity())
    for chunk in asked * 4:
        arranger.record([passage(chunk)])
    found = [passage(chunk) for chunk in drawn]
    places = arranger.arrange(found)
    assert sorted(places) == list(range(6))
    if order is PassageOrder.RANK:
        assert places == tuple(range(6))
    else:
        again = sorted(found, key=lambda each: each.start)
        assert [found[place] for place in places] == [again[place] for place in arranger.arrange(again)]
