"""Calls of callers without identity: few, short, and the oldest make room for the newest."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.errors import Overloaded
from edge_rag.service.limits import ANONYMOUS_S, AnonymousPool, AnonymousSlot, Timeouts


class Strangers:
    """Callers of a pool, and which of their calls were displaced."""

    def __init__(self, capacity: int, per_network: int) -> None:
        self.pool = AnonymousPool(capacity, per_network)
        self.slots: list[AnonymousSlot] = []
        self.displaced: list[int] = []

    def call(self, network: str) -> int:
        number = len(self.slots)
        self.slots.append(self.pool.acquire(network, lambda: self.displaced.append(number)))
        return number


@given(
    st.integers(1, 8),
    st.integers(1, 8),
    st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(["call", "keep", "release"])), max_size=100),
)
def test_the_bounds_hold_and_each_displaced_call_is_told_once(
    capacity: int, per_network: int, moves: list[tuple[str, str]]
) -> None:
    strangers = Strangers(capacity, per_network)
    held: dict[int, str] = {}
    for network, move in moves:
        mine = [number for number, other in held.items() if other == network]
        if move == "call":
            before = len(strangers.displaced)
            try:
                number = strangers.call(network)
            except Overloaded as refusal:
                assert refusal.retry_after_s > 0
                assert len(strangers.displaced) == before, "a refused call displaces nobody"
                continue
            for gone in strangers.displaced[before:]:
                assert not strangers.slots[gone].at_work
                del held[gone]
            held[number] = network
        elif mine and move == "keep":
            strangers.slots[mine[0]].keep()
        elif mine:
            strangers.slots[mine[0]].release()
            del held[mine[0]]
        assert strangers.pool.in_use == len(held) <= capacity
        assert max(Counter(held.values()).values(), default=0) <= per_network
    assert len(set(strangers.displaced)) == len(strangers.displaced)


def test_a_newcomer_displaces_the_oldest_call_of_its_own_network_first() -> None:
    strangers = Strangers(8, 2)
    for network in ("other", "own", "own", "own"):
        strangers.call(network)
    assert strangers.displaced == [1]


def test_in_a_full_pool_the_network_with_most_calls_makes_room() -> None:
    strangers = Strangers(4, 3)
    for network in ("old", "greedy", "greedy", "greedy", "new"):
        strangers.call(network)
    assert strangers.displaced == [1]
    strangers.call("newer")
    assert strangers.displaced == [1, 2]
    strangers.call("newest")
    assert strangers.displaced == [1, 2, 0], "all have one now"


def test_calls_at_work_stay_and_a_newcomer_is_refused() -> None:
    strangers = Strangers(2, 2)
    for network in ("a", "b"):
        strangers.slots[strangers.call(network)].keep()
    with pytest.raises(Overloaded):
        strangers.call("c")
    assert not strangers.displaced


def test_a_slot_that_was_taken_over_cannot_be_returned_again() -> None:
    strangers = Strangers(1, 1)
    strangers.call("a")
    strangers.call("b")
    strangers.slots[0].release()
    assert strangers.pool.in_use == 1


def test_a_call_of_a_caller_without_identity_is_short() -> None:
    timeouts = Timeouts(300, 86_400)
    assert timeouts.seconds(True, None, anonymous=True) == ANONYMOUS_S <= 120
    assert timeouts.seconds(True, 5.0, anonymous=True) == 5.0
    assert timeouts.seconds(True, None) == 86_400
