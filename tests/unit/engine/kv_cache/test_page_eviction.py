"""Which cached pages are evicted, over any history."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from edge_rag.engine.kv_cache.block_pool import HALF_LIFE_POOLS, BlockPool, Reservation, violations
from edge_rag.engine.kv_cache.prefix_cache import PrefixIndex
from edge_rag.engine.sequence import PageId, PageKey, SequenceId
from tests.support.examples import examples

PAGES, PAGE_TOKENS, LONGEST = 12, 2, 8
DOMAINS = ("manuals", "personnel")
Text = st.lists(st.integers(0, 1), min_size=1, max_size=LONGEST)


class WatchedPrefixes(PrefixIndex):
    """Records each evicted page, with the pages that stay findable and their parents."""

    def __init__(self, half_life: float) -> None:
        super().__init__(half_life)
        self.evicted: list[tuple[PageId, dict[PageId, PageId | None]]] = []

    def evict(self) -> PageId:
        page = super().evict()
        self.evicted.append((page, self.parents))
        return page


class PoolMachine(RuleBasedStateMachine):
    """Sequences over two letters, so that beginnings are shared all the time, come, grow and go."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(PAGES, PAGE_TOKENS)
        self.pool._prefixes = self.prefixes = WatchedPrefixes(HALF_LIFE_POOLS * PAGES)
        self.running: dict[SequenceId, tuple[str, list[int], list[PageKey]]] = {}
        self.last = 0

    def compute(self, sequence: SequenceId, first: int, count: int) -> None:
        with Reservation(self.pool, {sequence: first + count}) as pages:
            pages.commit()

    def register_full(self, sequence: SequenceId) -> None:
        domain, tokens, keys = self.running[sequence]
        self.pool.register_full(sequence, domain, tokens, len(tokens), keys)

    @rule(tokens=Text, domain=st.sampled_from(DOMAINS), together=st.booleans())
    def enter(self, tokens: list[int], domain: str, together: bool) -> None:
        """One sequence, or two that compute the same side by side."""
        entering = []
        for _ in range(1 + together):
            keys: list[PageKey] = []
            found = self.pool.match(domain, tokens, keys)
            needed = self.pool.pages_for(len(tokens)) - len(found)
            if needed > self.pool.available_without([], found):
                break
            self.last += 1
            sequence = SequenceId(self.last)
            self.pool.share(sequence, found)
            self.compute(sequence, len(found) * PAGE_TOKENS, len(tokens) - len(found) * PAGE_TOKENS)
            self.running[sequence] = (domain, list(tokens), keys)
            entering.append(sequence)
        for sequence in entering:
            self.register_full(sequence)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), token=st.integers(0, 1))
    def grow(self, data: st.DataObject, token: int) -> None:
        sequence = data.draw(st.sampled_from(sorted(self.running)))
        _, tokens, _ = self.running[sequence]
        if len(tokens) < 2 * LONGEST and (self.pool.available or len(tokens) % PAGE_TOKENS):
            tokens.append(token)
            self.compute(sequence, len(tokens) - 1, 1)
            self.register_full(sequence)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(sorted(self.running)))
        del self.running[sequence]
        self.pool.release(sequence)

    @rule(domain=st.sampled_from(DOMAINS))
    def forget(self, domain: str) -> None:
        """As the engine does: running sequences continue in a domain of their own."""
        for sequence, (own, tokens, _) in list(self.running.items()):
            if own == domain:
                self.running[sequence] = (f"{own}\0{sequence}", tokens, [])
        self.pool.forget(domain)

    @invariant()
    def every_page_is_accounted_for(self) -> None:
        computed = {sequence: len(tokens) for sequence, (_, tokens, _) in self.running.items()}
        assert violations(self.pool.snapshot(), computed) == []

    @invariant()
    def nothing_was_evicted_before_what_continues_it(self) -> None:
        for evicted, left in self.prefixes.evicted:
            assert evicted not in left
            assert evicted not in left.values()
        self.prefixes.evicted.clear()


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)


def use(pool: BlockPool, sequence: int, tokens: list[int]) -> int:
    """Lets a sequence come and go; returns the tokens it found."""
    keys: list[PageKey] = []
    name = SequenceId(sequence)
    found = pool.match("manuals", tokens, keys)
    pool.share(name, found)
    first = len(found) * PAGE_TOKENS
    with Reservation(pool, {name: len(tokens)}) as pages:
        pages.commit()
    pool.register_full(name, "manuals", tokens, len(tokens), keys)
    pool.release(name)
    return first


def test_a_frequent_page_outlives_a_later_one() -> None:
    pool = BlockPool(6, PAGE_TOKENS)
    often = [1, 2, 3, 4, 5]
    for sequence in range(3):
        use(pool, sequence, often)
    for sequence in range(3, 8):
        use(pool, sequence, [100 + sequence] * 5)
    assert use(pool, 99, often) == 4


def test_a_page_that_was_frequent_long_ago_is_evicted_in_the_end() -> None:
    pool = BlockPool(6, PAGE_TOKENS)
    once = [1, 2, 3, 4, 5]
    for sequence in range(3):
        use(pool, sequence, once)
    for sequence in range(3, 400):
        use(pool, sequence, [7, 7, sequence % 2, 7, 7])
        use(pool, 1000 + sequence, [sequence + 100] * 5)
    assert use(pool, 999, once) == 0


def test_of_equally_frequent_pages_the_least_recently_used_is_evicted() -> None:
    pool = BlockPool(4, PAGE_TOKENS)
    use(pool, 1, [1, 1, 0])
    use(pool, 2, [2, 2, 0])
    use(pool, 3, [3, 3, 0])
    pool.allocate(pool.available - 1)
    found = [len(pool.match("manuals", [letter, letter, 0], [])) for letter in (1, 2, 3)]
    assert found == [0, 0, 1]


def test_an_equal_page_computed_side_by_side_is_held_once_from_then_on() -> None:
    pool = BlockPool(4, PAGE_TOKENS)
    first, second = SequenceId(1), SequenceId(2)
    for sequence in (first, second):
        with Reservation(pool, {sequence: 3}) as pages:
            pages.commit()
    for sequence in (first, second):
        pool.register_full(sequence, "manuals", [1, 2, 3], 3, [])
    assert pool.table(first)[0] == pool.table(second)[0]
    assert pool.table(first)[1] != pool.table(second)[1]
    assert pool.available == 1
    assert violations(pool.snapshot(), {first: 3, second: 3}) == []
