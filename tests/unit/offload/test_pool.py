from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from edge_rag.offload.encoding.bulk_embedding import HERE, Pool

LONGEST = 50


def test_this_box_takes_from_the_front_and_others_from_the_back() -> None:
    pool = Pool([1] * 10, LONGEST)
    assert pool.take_here(3) == range(3)
    assert pool.take_away(4, 100) == range(6, 10)
    assert pool.take_away(4, 100) == range(3, 6)
    assert not pool.take_here(3)
    assert not pool.take_away(3, 100)


def test_a_batch_is_bounded_in_characters_too() -> None:
    pool = Pool([40, 40, 40, 40], LONGEST)
    assert pool.take_away(10, 100) == range(2, 4)


def test_what_is_too_long_to_be_sent_is_done_here() -> None:
    pool = Pool([1, 1, 99, 1], LONGEST)
    assert pool.take_away(10, 100) == range(3, 4)
    assert pool.take_away(10, 100) == range(2)
    assert not pool.take_away(10, 100)
    assert pool.take_here(10) == range(2, 3)


def test_what_others_have_may_be_done_here_as_well_and_whoever_is_first_counts() -> None:
    pool = Pool([1] * 6, LONGEST)
    part = pool.take_away(6, 100)
    assert pool.doubled(part, 4) == range(4)
    assert pool.fill(range(4), HERE) == [0, 1, 2, 3]
    assert pool.fill(part, "big") == [4, 5]
    assert pool.is_full
    assert not pool.doubled(part, 4)


def test_what_failed_is_free_again_but_not_what_was_done_here_meanwhile() -> None:
    pool = Pool([1] * 6, LONGEST)
    part = pool.take_away(6, 100)
    pool.fill(range(2), HERE)
    pool.give_back(part)
    assert pool.take_here(10) == range(2, 6)


def test_all_that_a_liar_did_is_free_again() -> None:
    pool = Pool([1] * 6, LONGEST)
    pool.fill(pool.take_away(2, 100), "liar")
    pool.fill(pool.take_away(2, 100), "big")
    assert pool.undo("liar") == 2
    assert pool.take_here(10) == range(2)
    assert pool.take_here(10) == range(4, 6)


class PoolAtWork(RuleBasedStateMachine):
    """Takes, fills and fails in any order; knows for itself who has what."""

    def __init__(self) -> None:
        super().__init__()
        self.lengths: Sequence[int] = []
        self.pool = Pool([], LONGEST)
        self.away: dict[range, str] = {}
        self.by: dict[int, str] = {}

    @precondition(lambda self: not self.lengths)
    @rule(lengths=st.lists(st.integers(0, 60), min_size=1, max_size=40))
    def begin(self, lengths: list[int]) -> None:
        self.lengths = lengths
        self.pool = Pool(lengths, LONGEST)

    @rule(most=st.integers(1, 9))
    def here(self, most: int) -> None:
        part = self.pool.take_here(most)
        assert len(part) <= most
        assert not self._held() & set(part)
        for position in self.pool.fill(part, HERE):
            self.by[position] = HERE

    @rule(most=st.integers(1, 9), characters=st.integers(LONGEST, 120), who=st.sampled_from(["a", "b"]))
    def elsewhere(self, most: int, characters: int, who: str) -> None:
        part = self.pool.take_away(most, characters)
        assert len(part) <= most
        assert sum(self.lengths[position] for position in part) <= characters
        assert all(self.lengths[position] <= LONGEST for position in part)
        assert not self._held() & set(part)
        if part:
            self.away[part] = who

    @precondition(lambda self: self.away)
    @rule(data=st.data(), well=st.booleans())
    def come_back(self, data: st.DataObject, well: bool) -> None:
        part = data.draw(st.sampled_from(sorted(self.away, key=lambda each: each.start)))
        who = self.away.pop(part)
        if not well:
            self.pool.give_back(part)
            return
        fresh = self.pool.fill(part, who)
        assert fresh == [position for position in part if position not in self.by]
        self.by |= dict.fromkeys(fresh, who)

    @precondition(lambda self: self.away)
    @rule(data=st.data(), most=st.integers(1, 9))
    def double(self, data: st.DataObject, most: int) -> None:
        whole = data.draw(st.sampled_from(sorted(self.away, key=lambda each: each.start)))
        part = self.pool.doubled(whole, most)
        assert len(part) <= most
        assert set(whole) >= set(part)
        assert not set(part) & set(self.by)
        assert part or set(whole) <= set(self.by)
        for position in self.pool.fill(part, HERE):
            self.by[position] = HERE

    @rule(who=st.sampled_from(["a", "b"]))
    def find_out(self, who: str) -> None:
        for part in [part for part, by in self.away.items() if by == who]:
            self.pool.give_back(part)
            del self.away[part]
        self.pool.undo(who)
        self.by = {position: by for position, by in self.by.items() if by != who}

    @invariant()
    def what_is_done_is_counted(self) -> None:
        assert self.pool.filled == len(self.by)
        assert self.pool.is_full == (len(self.by) == len(self.lengths))

    def teardown(self) -> None:
        """Whatever happened, this box can do the rest alone."""
        for part in self.away:
            self.pool.give_back(part)
        while part := self.pool.take_here(7):
            self.pool.fill(part, HERE)
        assert self.pool.is_full

    def _held(self) -> set[int]:
        return {position for part in self.away for position in part} | set(self.by)


TestPoolAtWork = PoolAtWork.TestCase
