"""Concurrent calls are bounded and shared among clients; every refusal has a retry delay."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.errors import Overloaded
from edge_rag.service.limits import ConcurrencyLimiter


def fill(limiter: ConcurrencyLimiter, client: str) -> int:
    taken = 0
    while True:
        try:
            limiter.acquire(client)
        except Overloaded:
            return taken
        taken += 1


@given(st.integers(1, 40), st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans()), max_size=200))
def test_calls_never_exceed_the_slots_and_a_released_slot_is_free(capacity: int, moves: list[tuple[str, bool]]) -> None:
    limiter = ConcurrencyLimiter(capacity, clock=lambda: 0.0)
    held: Counter[str] = Counter()
    for client, acquires in moves:
        if not acquires:
            if held[client]:
                limiter.release(client)
                held[client] -= 1
            continue
        free = capacity - held.total()
        try:
            limiter.acquire(client)
            held[client] += 1
        except Overloaded as refusal:
            assert free == 0 or held[client] >= 3 * free
            assert 0.05 <= refusal.retry_after_s <= 60
        assert limiter.in_use == held.total() <= capacity
    for client, count in held.items():
        for _ in range(count):
            limiter.release(client)
    assert limiter.in_use == 0


def test_a_greedy_client_leaves_slots_for_the_next_one() -> None:
    limiter = ConcurrencyLimiter(256)
    assert fill(limiter, "greedy") == 192
    assert fill(limiter, "other") == 48
    limiter.acquire("third")


@pytest.mark.parametrize("capacity", [1, 2, 3])
def test_a_lone_client_gets_all_slots_of_the_smallest_server(capacity: int) -> None:
    assert fill(ConcurrencyLimiter(capacity), "alone") == capacity


def test_a_released_slot_is_free_for_the_same_client() -> None:
    limiter = ConcurrencyLimiter(1)
    limiter.acquire("one")
    with pytest.raises(Overloaded):
        limiter.acquire("one")
    limiter.release("one")
    limiter.acquire("one")


def test_consecutive_refusals_get_increasing_delays_at_the_rate_of_releases() -> None:
    now = [0.0]
    limiter = ConcurrencyLimiter(3, clock=lambda: now[0])
    for _ in range(3):
        limiter.acquire("one")

    def delay() -> float:
        with pytest.raises(Overloaded) as refused:
            limiter.acquire("one")
        return refused.value.retry_after_s

    for _ in range(200):
        delay()
        limiter.release("one")
        now[0] += 0.2
        limiter.acquire("one")
    first, second, third = delay(), delay(), delay()
    assert second == pytest.approx(first + 0.2, rel=0.01)
    assert third == pytest.approx(second + 0.2, rel=0.01)
    for _ in range(50):
        assert delay() <= 3 * 0.2 + 0.01
