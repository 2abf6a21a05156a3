"""What is copied computed_ranges the computed tokens of a sequence."""

from hypothesis import given
from hypothesis import strategies as st

from edge_rag.engine.sequence import KvCopy, computed_ranges, next_copies, tokens_until


@st.composite
def loans_ahead(draw: st.DrawFn) -> tuple[int, tuple[KvCopy, ...]]:
    """A position, and copies after it."""
    first = draw(st.integers(0, 20))
    copies, position = [], first
    for gap, length in draw(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 9)), max_size=4)):
        copies.append(KvCopy(position + gap, length, (), 0))
        position = copies[-1].end
    return first, tuple(copies)


@given(loans_ahead(), st.integers(1, 60))
def test_next_copies_leave_as_many_computed_tokens_as_requested_and_end_with_one(
    ahead: tuple[int, tuple[KvCopy, ...]], count: int
) -> None:
    first, copies = ahead
    taken = next_copies(first, count, copies)
    end = first + count + sum(copy.length for copy in taken)
    computed = [position for begin, stop in computed_ranges(first, end, taken) for position in range(begin, stop)]
    copied = [position for copy in taken for position in range(copy.start, copy.end)]
    assert len(computed) == count
    assert computed[-1] == end - 1
    assert sorted(computed + copied) == list(range(first, end))
    assert all(copy.start >= end for copy in copies[len(taken) :])


@given(loans_ahead(), st.integers(0, 90))
def test_tokens_until_a_position_end_before_it(ahead: tuple[int, tuple[KvCopy, ...]], end: int) -> None:
    first, copies = ahead

    def last(count: int) -> int:
        return first + count + sum(copy.length for copy in next_copies(first, count, copies))

    count = tokens_until(first, end, copies)
    assert count == 0 or last(count) <= end
    assert last(count + 1) > end
