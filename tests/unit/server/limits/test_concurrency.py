"""Room for calls: bounded, shared, and everyone who is refused is told when to come back."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.errors import Overloaded
from edge_rag.server.limits.concurrency import ConcurrencyLimiter


def fill(places: ConcurrencyLimiter, caller: str) -> int:
    taken = 0
    while True:
        try:
            places.take(caller)
        except Overloaded:
            return taken
        taken += 1


@given(st.integers(1, 40), st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans()), max_size=200))
def test_there_are_never_more_calls_than_places_and_whoever_leaves_makes_room(
    capacity: int, moves: list[tuple[str, bool]]
) -> None:
    places = ConcurrencyLimiter(capacity, clock=lambda: 0.0)
    inside: Counter[str] = Counter()
    for caller, comes in moves:
        if not comes:
            if inside[caller]:
                places.leave(caller)
                inside[caller] -= 1
            continue
        free = capacity - inside.total()
        try:
            places.take(caller)
            inside[caller] += 1
        except Overloaded as refusal:
            assert free == 0 or inside[caller] >= 3 * free
            assert 0.05 <= refusal.retry_after_s <= 60
        assert places.taken == inside.total() <= capacity
    for caller, count in inside.items():
        for _ in range(count):
            places.leave(caller)
    assert places.taken == 0


def test_a_greedy_caller_leaves_places_for_the_next_one_to_come() -> None:
    places = ConcurrencyLimiter(256)
    assert fill(places, "greedy") == 192
    assert fill(places, "other") == 48
    places.take("third")


@pytest.mark.parametrize("capacity", [1, 2, 3])
def test_the_smallest_server_serves_a_lone_caller_with_all_it_has(capacity: int) -> None:
    assert fill(ConcurrencyLimiter(capacity), "alone") == capacity


def test_a_place_that_is_given_back_is_free_for_the_same_caller() -> None:
    places = ConcurrencyLimiter(1)
    places.take("one")
    with pytest.raises(Overloaded):
        places.take("one")
    places.leave("one")
    places.take("one")


def test_those_refused_are_told_to_come_back_one_after_the_other_at_the_pace_of_leaving() -> None:
    now = [0.0]
    places = ConcurrencyLimiter(3, clock=lambda: now[0])
    for _ in range(3):
        places.take("one")

    def told() -> float:
        with pytest.raises(Overloaded) as refused:
            places.take("one")
        return refused.value.retry_after_s

    for _ in range(200):
        told()
        places.leave("one")
        now[0] += 0.2
        places.take("one")
    first, second, third = told(), told(), told()
    assert second == pytest.approx(first + 0.2, rel=0.01)
    assert third == pytest.approx(second + 0.2, rel=0.01)
    for _ in range(50):
        assert told() <= 3 * 0.2 + 0.01
