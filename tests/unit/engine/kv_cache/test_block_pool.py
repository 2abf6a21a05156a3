from dataclasses import replace

import pytest

from edge_rag.engine.kv_cache.block_pool import BlockPool, PagesExhausted, Reservation, violations
from edge_rag.engine.kv_cache.prefix_cache import extend_chain
from edge_rag.engine.sequence import PageId, PageKey, SequenceId

A, B, C = SequenceId(1), SequenceId(2), SequenceId(3)
TOKENS = list(range(100, 140))


def compute(pool: BlockPool, sequence: SequenceId, first: int, count: int) -> None:
    with Reservation(pool, {sequence: first + count}) as pages:
        pages.commit()


def hold(pool: BlockPool, sequence: SequenceId, tokens: list[int], domain: str = "manuals") -> int:
    """Lets a sequence find what it can and compute the rest; returns the tokens it found."""
    keys: list[PageKey] = []
    found = pool.match(domain, tokens, keys)
    pool.share(sequence, found)
    first = len(found) * pool.page_tokens
    compute(pool, sequence, first, len(tokens) - first)
    pool.register_full(sequence, domain, tokens, len(tokens), keys)
    return first


def test_a_committed_step_leaves_its_pages_with_the_sequences() -> None:
    pool = BlockPool(4, 8)
    compute(pool, A, 0, 9)
    compute(pool, A, 9, 7)
    assert pool.held(A) == 2
    assert pool.available == 2


def test_a_step_that_is_not_committed_never_was() -> None:
    pool = BlockPool(4, 8)
    compute(pool, A, 0, 8)
    before = pool.snapshot()
    with Reservation(pool, {A: 9, B: 16}) as pages:
        assert len(pages.tables[A]) == 2
        assert len(pages.tables[B]) == 2
        assert pool.available == 0
    after = pool.snapshot()
    assert (sorted(after.free), after.references, after.tables) == (
        sorted(before.free),
        before.references,
        before.tables,
    )


def test_a_reservation_that_cannot_be_met_takes_nothing() -> None:
    pool = BlockPool(2, 8)
    with pytest.raises(PagesExhausted):
        with Reservation(pool, {A: 8, B: 16}):
            pytest.fail("entered")
    assert pool.available == 2


def test_equal_beginnings_share_their_full_pages() -> None:
    pool = BlockPool(10, 8)
    assert hold(pool, A, TOKENS) == 0
    assert hold(pool, B, [*TOKENS[:20], 1, 2, 3, 4, 5]) == 16
    assert pool.table(B)[:2] == pool.table(A)[:2]
    assert pool.table(B)[2] != pool.table(A)[2]
    assert not violations(pool.snapshot(), {A: 40, B: 25})


def test_the_last_token_is_always_computed_because_its_logits_are_needed() -> None:
    pool = BlockPool(10, 8)
    hold(pool, A, TOKENS[:16])
    assert hold(pool, B, TOKENS[:16]) == 8


def test_released_pages_are_found_again_until_they_are_evicted() -> None:
    pool = BlockPool(5, 8)
    hold(pool, A, TOKENS)
    pool.release(A)
    assert pool.available == 5
    assert hold(pool, B, TOKENS) == 32
    pool.release(B)
    hold(pool, C, list(range(40)))
    assert pool.match("manuals", TOKENS, []) == ()


def test_a_page_is_found_only_after_an_equal_beginning() -> None:
    first: list[PageKey] = []
    second: list[PageKey] = []
    extend_chain(first, "d", [1, 2, 9, 9], 2, 2)
    extend_chain(second, "d", [3, 4, 9, 9], 2, 2)
    assert first[1] != second[1]


def test_the_forecast_of_available_pages_agrees_with_what_comes_free() -> None:
    pool = BlockPool(12, 8)
    hold(pool, A, TOKENS)
    hold(pool, B, [*TOKENS[:16], *range(24)])
    hold(pool, C, TOKENS)
    kept = pool.match("manuals", TOKENS, [])[:1]
    forecast = pool.available_without([A, C], kept)
    pool.release(A)
    pool.release(C)
    assert forecast == pool.available
    assert pool.available_without([B], pool.table(B)[:1]) == pool.available + 4


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"free": (PageId(3), PageId(2), PageId(2))}, "page 2 is 2 times free"),
        ({"free": (PageId(3),)}, "page 2 is 0 times free"),
        ({"cached": (PageId(0),)}, "page 0 is 0 times free, 1 times cached"),
        ({"references": (1, 2, 0, 0)}, "page 1 counts 2 references"),
        ({"free": (PageId(3), PageId(2), PageId(9))}, "page 9 does not exist"),
        ({"tables": {A: (PageId(0), PageId(1)), B: (PageId(2),)}}, "sequence 2 holds 1 pages but does not run"),
        ({"tables": {A: (PageId(0), PageId(0))}}, "holds a page twice"),
        ({"tables": {A: (PageId(0),)}}, "sequence 1 has 12 tokens in 1 pages"),
        ({"parents": {PageId(3): None}}, "page 3 can be found and is free"),
        ({"parents": {PageId(1): PageId(0)}}, "page 1 can be found, page 0 before it cannot"),
        (
            {"parents": {PageId(0): None, PageId(1): PageId(0)}, "cached": (PageId(0),)},
            "page 1 is held, page 0 before it is not",
        ),
    ],
)
def test_every_kind_of_broken_accounting_is_noticed(change: dict[str, object], expected: str) -> None:
    pool = BlockPool(4, 8)
    compute(pool, A, 0, 12)
    assert not violations(pool.snapshot(), {A: 12})
    assert any(expected in wrong for wrong in violations(replace(pool.snapshot(), **change), {A: 12}))  # type: ignore[arg-type]
