"""Room for calls: bounded, shared, and everyone who is refused is told when to come back."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.errors import Overloaded
from edge_rag.service.limits import ConcurrencyLimiter


def fill(limiter: ConcurrencyLimiter, caller: str) -> int:
    taken = 0
    while True:
        try:
            limiter.acquire(caller)
        except Overloaded:
            return taken
        taken += 1


@given(st.integers(1, 40), st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans()), max_size=200))
def test_there_are_never_more_calls_than_limiter_and_whoever_leaves_makes_room(
    capacity: int, moves: list[tuple[str, bool]]
) -> None:
    limiter = ConcurrencyLimiter(capacity, clock=lambda: 0.0)
    inside: Counter[str] = Counter()
    for caller, comes in moves:
        if not comes:
            if inside[caller]:
                limiter.release(caller)
                inside[caller] -= 1
            continue
        free = capacity - inside.total()
        try:
            limiter.acquire(caller)
            inside[caller] += 1
        except Overloaded as refusal:
            assert free == 0 or inside[caller] >= 3 * free
            assert 0.05 <= refusal.retry_after_s <= 60
        assert limiter.in_use == inside.total() <= capacity
    for caller, count in inside.items():
        for _ in range(count):
            limiter.release(caller)
    assert limiter.in_use == 0


def test_a_greedy_caller_leaves_limiter_for_the_next_one_to_come() -> None:
    limiter = ConcurrencyLimiter(256)
    assert fill(limiter, "greedy") == 192
    assert fill(limiter, "other") == 48
    limiter.acquire("third")


@pytest.mark.parametrize("capacity", [1, 2, 3])
def test_the_smallest_server_serves_a_lone_caller_with_all_it_has(capacity: int) -> None:
    assert fill(ConcurrencyLimiter(capacity), "alone") == capacity


def test_a_place_that_is_given_back_is_free_for_the_same_caller() -> None:
    limiter = ConcurrencyLimiter(1)
    limiter.acquire("one")
    with pytest.raises(Overloaded):
        limiter.acquire("one")
    limiter.release("one")
    limiter.acquire("one")


def test_those_refused_are_told_to_come_back_one_after_the_other_at_the_pace_of_leaving() -> None:
    now = [0.0]
    limiter = ConcurrencyLimiter(3, clock=lambda: now[0])
    for _ in range(3):
        limiter.acquire("one")

    def told() -> float:
        with pytest.raises(Overloaded) as refused:
            limiter.acquire("one")
        return refused.value.retry_after_s

    for _ in range(200):
        told()
        limiter.release("one")
        now[0] += 0.2
        limiter.acquire("one")
    first, second, third = told(), told(), told()
    assert second == pytest.approx(first + 0.2, rel=0.01)
    assert third == pytest.approx(second + 0.2, rel=0.01)
    for _ in range(50):
        assert told() <= 3 * 0.2 + 0.01
