from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from edge_rag.offload.encoding.bulk_embedding import LOCAL, TextPool

MAX_CHARACTERS = 50


def test_the_local_embedder_takes_from_the_front_and_remotes_from_the_back() -> None:
    pool = TextPool([1] * 10, MAX_CHARACTERS)
    assert pool.take_front(3) == range(3)
    assert pool.take_back(4, 100) == range(6, 10)
    assert pool.take_back(4, 100) == range(3, 6)
    assert not pool.take_front(3)
    assert not pool.take_back(3, 100)


def test_texts_that_are_too_long_stay_local() -> None:
    pool = TextPool([1, 1, 99, 1], MAX_CHARACTERS)
    assert pool.take_back(10, 100) == range(3, 4)
    assert pool.take_back(10, 100) == range(2)
    assert not pool.take_back(10, 100)
    assert pool.take_front(10) == range(2, 3)


def test_all_texts_of_a_rejected_remote_are_free_again() -> None:
    pool = TextPool([1] * 6, MAX_CHARACTERS)
    pool.fill(pool.take_back(2, 100), "bad")
    pool.fill(pool.take_back(2, 100), "big")
    assert pool.revert("bad") == 2
    assert pool.take_front(10) == range(2)
    assert pool.take_front(10) == range(4, 6)


class AnyHistory(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.lengths: Sequence[int] = []
        self.pool = TextPool([], MAX_CHARACTERS)
        self.taken: dict[range, str] = {}
        self.by: dict[int, str] = {}

    @precondition(lambda self: not self.lengths)
    @rule(lengths=st.lists(st.integers(0, 60), min_size=1, max_size=40))
    def begin(self, lengths: list[int]) -> None:
        self.lengths = lengths
        self.pool = TextPool(lengths, MAX_CHARACTERS)

    @rule(most=st.integers(1, 9))
    def local(self, most: int) -> None:
        part = self.pool.take_front(most)
        assert len(part) <= most
        assert not self._unavailable() & set(part)
        for position in self.pool.fill(part, LOCAL):
            self.by[position] = LOCAL

    @rule(most=st.integers(1, 9), characters=st.integers(MAX_CHARACTERS, 120), name=st.sampled_from(["a", "b"]))
    def remote(self, most: int, characters: int, name: str) -> None:
        part = self.pool.take_back(most, characters)
        assert len(part) <= most
        assert sum(self.lengths[position] for position in part) <= characters
        assert all(self.lengths[position] <= MAX_CHARACTERS for position in part)
        assert not self._unavailable() & set(part)
        if part:
            self.taken[part] = name

    @precondition(lambda self: self.taken)
    @rule(data=st.data(), success=st.booleans())
    def reply(self, data: st.DataObject, success: bool) -> None:
        part = data.draw(st.sampled_from(sorted(self.taken, key=lambda each: each.start)))
        name = self.taken.pop(part)
        if not success:
            self.pool.release(part)
            return
        new = self.pool.fill(part, name)
        assert new == [position for position in part if position not in self.by]
        self.by |= dict.fromkeys(new, name)

    @precondition(lambda self: self.taken)
    @rule(data=st.data(), most=st.integers(1, 9))
    def backup(self, data: st.DataObject, most: int) -> None:
        whole = data.draw(st.sampled_from(sorted(self.taken, key=lambda each: each.start)))
        part = self.pool.backup(whole, most)
        assert len(part) <= most
        assert set(whole) >= set(part)
        assert not set(part) & set(self.by)
        assert part or set(whole) <= set(self.by)
        for position in self.pool.fill(part, LOCAL):
            self.by[position] = LOCAL

    @rule(name=st.sampled_from(["a", "b"]))
    def reject(self, name: str) -> None:
        for part in [part for part, by in self.taken.items() if by == name]:
            self.pool.release(part)
            del self.taken[part]
        self.pool.revert(name)
        self.by = {position: by for position, by in self.by.items() if by != name}

    @invariant()
    def filled_texts_are_counted(self) -> None:
        assert self.pool.filled == len(self.by)
        assert self.pool.is_complete == (len(self.by) == len(self.lengths))

    def teardown(self) -> None:
        for part in self.taken:
            self.pool.release(part)
        while part := self.pool.take_front(7):
            self.pool.fill(part, LOCAL)
        assert self.pool.is_complete

    def _unavailable(self) -> set[int]:
        return {position for part in self.taken for position in part} | set(self.by)


TestAnyHistory = AnyHistory.TestCase
