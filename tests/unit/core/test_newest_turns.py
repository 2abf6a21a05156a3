"""The turns of a conversation that a question carries."""

from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.limits.request_fields import (
    MAX_TURNS,
    MAX_TURNS_CHARACTERS,
    TURNS_LEFT_OUT_AT_ONCE,
    checked_turns,
    newest_turns,
)
from edge_rag.core.query import Turn, TurnSource

LONG = "x" * (MAX_TURNS_CHARACTERS // 3)
TEXTS = st.sampled_from(["", "a", "a\x00b", LONG, LONG * 4])
SOURCES = st.builds(TurnSource, st.just("d"), st.sampled_from([(), ("h",), ("h",) * 100]), TEXTS)
TURNS = st.builds(Turn, st.just("question"), TEXTS, st.lists(SOURCES, max_size=40).map(tuple))


@given(st.lists(TURNS, max_size=30))
def test_every_server_takes_the_newest_turns(turns: list[Turn]) -> None:
    kept = newest_turns(turns)
    assert checked_turns("turns", kept, 8192) == kept
    assert bool(kept) == bool(turns)
    assert newest_turns(kept) == kept


@given(st.integers(0, 60))
def test_short_turns_are_kept_whole_and_begin_with_the_same_one_between_steps(count: int) -> None:
    turns = [Turn(str(number)) for number in range(count)]
    kept, after = newest_turns(turns), newest_turns([*turns, Turn("next")])
    assert kept == tuple(turns[len(turns) - len(kept) :])
    assert len(kept) > MAX_TURNS - TURNS_LEFT_OUT_AT_ONCE or len(kept) == count
    assert after[: len(kept)] == kept or len(kept) == MAX_TURNS


def test_a_turn_that_is_too_long_loses_sources_and_the_end_of_its_answer() -> None:
    cited = tuple(TurnSource(f"{number}.md", text=LONG) for number in range(3))
    (kept,) = newest_turns([Turn("how?", "answer", cited)])
    assert (kept.question, kept.answer, kept.sources) == ("how?", "answer", cited[:2])
    (kept,) = newest_turns([Turn("how?", LONG * 4, cited)])
    assert len(kept.answer) == MAX_TURNS_CHARACTERS - len("how?")
    assert kept.sources == ()
