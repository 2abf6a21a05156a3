"""What encoders read of a question, and which of its words are searched for."""

from hypothesis import given
from hypothesis import strategies as st

from edge_rag.analysis.questions import QUESTION_TOKENS, excerpt


def words(text: str) -> int:
    return len(text.split())


def letters(text: str) -> int:
    return len(text)


FILLER = "The weather was fine and nobody said much about it that day. " * 40
ASKED = "Which seal belongs to the inlet valve?"
WEIGHTS = {"seal": 5.0, "inlet": 6.0, "valve": 4.0, "belongs": 3.0, "weather": 1.0, "day": 0.5}


@given(st.text(max_size=2000), st.dictionaries(st.text(max_size=5), st.floats(0, 10)))
def test_an_excerpt_is_bounded_whatever_the_text(text: str, weights: dict[str, float]) -> None:
    """A character is one token, as in Chinese."""
    short = excerpt(text, lambda whole: weights, letters)
    assert len(short.replace("\n", "")) <= max(QUESTION_TOKENS, 160)
    assert len(short) < len(text) or short == text


def test_a_short_question_is_read_as_it_is() -> None:
    assert excerpt(ASKED, lambda whole: WEIGHTS, words) == ASKED
    spaced = "  Which\n\nseal? "
    assert excerpt(spaced, lambda whole: {}, words) == spaced


def test_the_question_is_found_wherever_it_stands() -> None:
    for text in (f"{ASKED} {FILLER}", f"{FILLER} {ASKED}", f"{FILLER} {ASKED} {FILLER}"):
        short = excerpt(text, lambda whole: WEIGHTS, words)
        assert ASKED in short
        assert words(short) <= QUESTION_TOKENS


def test_without_a_question_mark_rare_words_decide() -> None:
    text = f"{FILLER} I look for the seal that belongs to the inlet valve. {FILLER}"
    assert "the seal that belongs to the inlet valve" in excerpt(text, lambda whole: WEIGHTS, words)


def test_beginning_and_end_are_read_where_no_word_is_known() -> None:
    text = "Alpha begins. " + FILLER + "Omega ends."
    short = excerpt(text, lambda whole: {}, words)
    assert short.startswith("Alpha begins.")
    assert short.endswith("Omega ends.")


def test_text_without_spaces_is_cut() -> None:
    assert 0 < len(excerpt("x" * 100_000, lambda whole: {}, letters)) <= 160
