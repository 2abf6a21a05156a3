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
    RENEWED_AFTER,
    PassageArranger,
    PassageHeat,
    PassageKey,
)


def passage(chunk: int, document: str = "d", start: int | None = None) -> Passage:
    start = 100 * chunk if start is None else start
    return Passage(ChunkId(chunk), DocumentId(document), f"{document}.md", None, start, start + 50, "text")


def key(chunk: int) -> PassageKey:
    return PassageKey("d", chunk, chunk)


def ask(heat: PassageHeat, times: int, *chunks: int) -> None:
    for _ in range(times):
        heat.asked(map(key, chunks))


def test_what_is_asked_for_often_comes_first() -> None:
    heat = PassageHeat()
    ask(heat, FIRST_RENEWAL, 3)
    assert heat.arrange([key(1), key(2), key(3)]) == (2, 0, 1)


def test_until_the_list_is_renewed_nothing_changes_places() -> None:
    heat = PassageHeat()
    ask(heat, FIRST_RENEWAL - 1, 3)
    assert heat.arrange([key(1), key(3)]) == (0, 1)
    ask(heat, 1, 3)
    assert heat.arrange([key(1), key(3)]) == (1, 0)
    ask(heat, FIRST_RENEWAL - 1, 1)
    assert heat.arrange([key(1), key(3)]) == (1, 0)


def test_in_the_long_run_the_list_is_renewed_after_as_many_questions_again_and_again() -> None:
    heat, orders = PassageHeat(half_life=100), []
    for question in range(6 * RENEWED_AFTER):
        ask(heat, 1, question // RENEWED_AFTER)
        orders.append(heat.state().order)
    changes = [at for at in range(1, len(orders)) if orders[at] != orders[at - 1]]
    assert changes
    assert all(later - earlier >= RENEWED_AFTER for earlier, later in pairwise(at for at in changes if at > 1024))


def test_equally_hot_passages_stand_as_in_their_documents() -> None:
    arranger = PassageArranger(PassageOrder.HOT, PassageHeat())
    found = [passage(4, "b", 0), passage(9, "a", 700), passage(2, "a", 900), passage(1, "b", 300)]
    assert arranger.places(found) == (1, 2, 0, 3)


def test_a_passage_asked_for_a_little_more_often_does_not_change_places() -> None:
    heat = PassageHeat(half_life=1e9)
    ask(heat, 20, 1)
    ask(heat, 22, 2)
    ask(heat, FIRST_RENEWAL - 42, 3)
    assert heat.arrange([key(3), key(2), key(1)]) == (2, 1, 0)


def test_what_was_asked_for_long_ago_counts_less() -> None:
    heat = PassageHeat(half_life=10)
    ask(heat, 40, 2)
    ask(heat, 88, 3)
    assert heat.arrange([key(1), key(2), key(3)]) == (2, 0, 1)


def test_of_too_many_passages_the_hottest_are_kept() -> None:
    heat = PassageHeat(most_kept=4)
    for chunk in range(FIRST_RENEWAL):
        ask(heat, 1, 100, chunk)
    assert len(heat.state().counts) <= 4
    assert heat.arrange([key(50), key(100)]) == (1, 0)


@given(st.lists(st.lists(st.integers(0, 8), max_size=4, unique=True), max_size=150))
def test_heat_goes_on_where_it_was_left(questions: list[list[int]]) -> None:
    heat, resumed = PassageHeat(), PassageHeat()
    for question in questions:
        ask(heat, 1, *question)
    resumed.resume(heat.state())
    left, found = heat.state(), resumed.state()
    assert found.order == left.order
    assert found.counts == pytest.approx(left.counts)


@given(st.permutations(range(6)), st.lists(st.integers(0, 5), max_size=60), st.sampled_from(PassageOrder))
def test_every_passage_has_one_place_and_only_rank_asks_for_ranks(
    drawn: list[int], asked: list[int], order: PassageOrder
) -> None:
    arranger = PassageArranger(order, PassageHeat())
    for chunk in asked * 4:
        arranger.asked([passage(chunk)])
    found = [passage(chunk) for chunk in drawn]
    places = arranger.places(found)
    assert sorted(places) == list(range(6))
    if order is PassageOrder.RANK:
        assert places == tuple(range(6))
    else:
        again = sorted(found, key=lambda each: each.start)
        assert [found[place] for place in places] == [again[place] for place in arranger.places(again)]
