from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from edge_rag.offload.generation.routing import BOUND, Candidate, documents_key, ranking

THREE = tuple(Candidate(name, 1.0, 0) for name in ("a", "b", "c"))
KEYS = [documents_key([f"document {n}"]) for n in range(600)]


def test_requests_about_the_same_documents_go_to_the_same_remote() -> None:
    assert documents_key(["x", "y", "x"]) == documents_key(["y", "x"])
    assert {ranking(KEYS[0], order) for order in (THREE, THREE[::-1])} == {ranking(KEYS[0], THREE)}


def test_a_remote_that_goes_moves_only_its_own_requests() -> None:
    for key in KEYS:
        before, after = ranking(key, THREE), ranking(key, THREE[:2])
        assert after == tuple(name for name in before if name != "c")


def test_documents_spread_by_measured_speed() -> None:
    even = Counter(ranking(key, THREE)[0] for key in KEYS)
    assert min(even.values()) > 150
    faster = Counter(ranking(key, (replace(THREE[0], speed=4.0), *THREE[1:]))[0] for key in KEYS)
    assert faster["a"] > 1.5 * (faster["b"] + faster["c"])


def test_a_remote_over_its_share_or_without_room_is_passed_over() -> None:
    first = ranking(KEYS[0], THREE)[0]
    loaded = tuple(replace(each, in_flight=9 if each.name == first else 1) for each in THREE)
    assert ranking(KEYS[0], loaded)[0] != first
    full = tuple(replace(each, spare=0 if each.name == first else 3) for each in THREE)
    assert ranking(KEYS[0], full)[0] != first


@given(st.lists(st.sampled_from(KEYS[:5]), min_size=1, max_size=200))
def test_no_remote_gets_much_more_than_its_share_however_alike_requests_are(keys: list[bytes]) -> None:
    in_flight = Counter[str]()
    for count, key in enumerate(keys, start=1):
        chosen = ranking(key, [replace(each, in_flight=in_flight[each.name]) for each in THREE])[0]
        in_flight[chosen] += 1
        assert in_flight[chosen] <= BOUND * count / len(THREE) + 1


def test_when_all_are_full_the_least_loaded_one_is_asked() -> None:
    full = tuple(replace(each, spare=0, in_flight=n) for n, each in enumerate(THREE, start=1))
    assert ranking(KEYS[0], full) == ("a", "b", "c")
