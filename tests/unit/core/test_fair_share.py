"""The fair queue: shares between clients whatever they send, and what one client may fill."""

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.limits.fair_share import FairQueue

CLIENTS = ("a", "b", "c", "d")
costs = st.floats(min_value=0.01, max_value=10)
entries = st.lists(st.tuples(st.sampled_from(CLIENTS), costs, costs), min_size=8, max_size=80)


def run_next(queue: FairQueue[float]) -> tuple[str, float]:
    entry = queue.first()
    assert entry is not None
    queue.take(entry)
    queue.finish(entry, entry.value)
    return entry.client, entry.value


@given(entries)
def test_backlogged_clients_never_differ_by_more_than_the_largest_entry(
    given_entries: list[tuple[str, float, float]],
) -> None:
    """Estimates may be wrong by any factor: service is counted as measured."""
    queue: FairQueue[float] = FairQueue(1000)
    left: dict[str, int] = defaultdict(int)
    for client, estimate, true in given_entries:
        queue.put(client, true, estimate)
        left[client] += 1
    served = dict.fromkeys(left, 0.0)
    largest = max(true for _, _, true in given_entries)
    while len(queue):
        client, cost = run_next(queue)
        served[client] += cost
        left[client] -= 1
        backlogged = [served[each] for each in served if left[each]]
        if len(backlogged) > 1:
            assert max(backlogged) - min(backlogged) <= largest + 1e-6
    assert all(count == 0 for count in left.values())


@given(st.lists(st.tuples(costs, costs), min_size=1, max_size=30), costs)
def test_a_client_that_comes_while_another_runs_is_next(flood: list[tuple[float, float]], cost: float) -> None:
    queue: FairQueue[float] = FairQueue(1000)
    for estimate, true in flood:
        queue.put("flood", true, estimate)
    running = queue.first()
    assert running is not None
    queue.take(running)
    queue.put("one", cost, cost)
    queue.finish(running, running.value)
    assert run_next(queue)[0] == "one"


@given(st.lists(costs, min_size=5, max_size=120), st.integers(0, 2))
def test_a_stream_of_new_clients_does_not_take_the_share_of_an_old_one(stream: list[float], more: int) -> None:
    """Whoever comes, a backlogged client is behind an equal share of all that was done by the largest entry at most."""
    queue: FairQueue[float] = FairQueue(1000)
    for cost in stream:
        queue.put("old", cost, 1.0)
    served = share = 0.0
    for number, cost in enumerate(stream):
        for extra in range(1 + (more if number % 7 == 0 else 0)):
            queue.put(f"new {number} {extra}", cost, 1.0)
        active = len({entry.client for entry in queue})
        client, took = run_next(queue)
        served += took if client == "old" else 0.0
        share += took / active
        assert served >= share - max(stream) - 1e-6


@given(entries, st.data())
def test_removed_entries_cost_nothing(given_entries: list[tuple[str, float, float]], data: st.DataObject) -> None:
    """A client that cancels has the same turns as one that never asked."""
    queue: FairQueue[float] = FairQueue(1000)
    plain: FairQueue[float] = FairQueue(1000)
    for client, estimate, true in given_entries:
        kept = data.draw(st.booleans())
        entry = queue.put(client, true, estimate)
        if kept:
            plain.put(client, true, estimate)
        else:
            queue.remove(entry)
    assert len(queue) == len(plain)
    assert [run_next(queue) for _ in range(len(queue))] == [run_next(plain) for _ in range(len(plain))]


def test_a_part_that_was_charged_counts_once() -> None:
    queue: FairQueue[float] = FairQueue(10)
    long = queue.put("a", 0.0, 4.0)
    queue.put("b", 1.0, 1.0)
    queue.put("b", 1.0, 1.0)
    queue.take(long)
    for _ in range(3):
        queue.charge(long, 1.0)
    assert queue.service("a") == 4.0
    queue.finish(long, 0.5)
    queue.put("a", 1.0, 1.0)
    assert [run_next(queue)[0] for _ in range(3)] == ["b", "b", "a"]


def test_a_clients_own_entries_go_by_urgency_and_then_by_arrival() -> None:
    queue: FairQueue[str] = FairQueue(10)
    for value, urgency in (("first", 1), ("batch", 2), ("second", 1), ("urgent", 0)):
        queue.put("a", value, 1.0, urgency)
    assert [entry.value for entry in queue] == ["urgent", "first", "second", "batch"]


def test_a_client_that_may_not_start_is_passed_over() -> None:
    queue: FairQueue[str] = FairQueue(10)
    queue.put("a", "large", 1.0)
    queue.put("a", "behind it", 1.0)
    other = queue.put("b", "small", 1.0)
    assert queue.first(lambda entry: entry.value != "large") is other


@pytest.mark.parametrize(("capacity", "alone", "second"), [(256, 192, 48), (8, 6, 2), (4, 3, 1), (1, 1, 0)])
def test_one_client_leaves_room_for_those_that_come_later(capacity: int, alone: int, second: int) -> None:
    queue: FairQueue[int] = FairQueue(capacity)
    held = {"greedy": 0, "later": 0}
    for client in held:
        while queue.has_room(client):
            queue.put(client, 0, 1.0)
            held[client] += 1
    assert held == {"greedy": alone, "later": second}


def test_clients_without_entries_are_forgotten() -> None:
    queue: FairQueue[float] = FairQueue(10)
    for number in range(1000):
        queue.put(f"client {number}", 0.1, 0.3)
        run_next(queue)
    assert not list(queue)
    assert queue._clients == {}
    assert queue._shares.tracked_clients == 0
