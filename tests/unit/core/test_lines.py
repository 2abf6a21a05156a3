import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.documents.lines import NO_LINES, LineMap

maps = st.dictionaries(st.integers(0, 500), st.integers(0, 300)).map(lambda marks: LineMap(sorted(marks.items())))


@given(maps, st.integers(0, 500), st.integers(0, 500), st.integers(0, 600))
def test_a_part_tells_the_lines_of_its_range_as_the_whole_does(whole: LineMap, one: int, other: int, at: int) -> None:
    start, end = sorted((one, other))
    if start <= at < end:
        assert whole.part(start, end).line_at(at) == whole.line_at(at)
    assert all(start <= character < end for character, _ in whole.part(start, end))


@given(maps)
def test_a_map_is_the_same_after_it_was_stored(whole: LineMap) -> None:
    assert LineMap.of_steps(whole.steps()) == whole


def test_text_before_the_first_mark_or_from_an_unknown_line_has_no_line() -> None:
    lines = LineMap([(4, 2), (9, 0), (20, 7)])
    assert [lines.line_at(at) for at in (0, 4, 8, 9, 19, 20, 99)] == [None, 2, 2, None, None, 7, 7]
    assert NO_LINES.line_at(0) is None


@pytest.mark.parametrize("steps", [[1], [1, "2"], [3, 1, 0, 1], [-1, 1], [1, -1], [1, 1 << 40], [True, 1]])
def test_steps_that_no_map_has_are_refused(steps: list[int]) -> None:
    with pytest.raises(ValueError, match="mark"):
        LineMap.of_steps(steps)
