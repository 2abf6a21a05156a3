from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from edge_rag.generator.streams import StopMatcher

pieces = st.lists(st.text("ab\n", max_size=4), max_size=12)
stops = st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=3)


@given(pieces, stops)
@example(["a", "ab"], ["aab"])
@example(["aa", "b"], ["ab", "aab"])
def test_the_text_ends_before_the_first_stop_string_for_any_chunking(texts: list[str], strings: list[str]) -> None:
    matcher = StopMatcher(strings)
    said = "".join(matcher.feed(text) for text in texts) + matcher.flush()
    whole = "".join(texts)
    found = [(whole.find(stop) + len(stop), whole.find(stop)) for stop in strings if stop in whole]
    assert matcher.stopped == bool(found)
    assert said == (whole[: min(found)[1]] if found else whole)


@given(pieces, stops)
def test_a_possible_prefix_of_a_stop_string_is_held_back(texts: list[str], strings: list[str]) -> None:
    matcher = StopMatcher(strings)
    shown = whole = ""
    for text in texts:
        shown, whole = shown + matcher.feed(text), whole + text
        if not matcher.stopped:
            begun = [len(whole) - n for stop in strings for n in range(1, len(stop)) if whole.endswith(stop[:n])]
            assert len(shown) == min(begun, default=len(whole))


def test_other_text_is_emitted_at_once() -> None:
    matcher = StopMatcher(["END"])
    assert matcher.feed("hello E") == "hello "
    assert matcher.feed("x") == "Ex"
