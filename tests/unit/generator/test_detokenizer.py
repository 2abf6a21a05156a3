from hypothesis import given
from hypothesis import strategies as st

from edge_rag.generator.prompt.tokenizer import ChatTokenizer
from tests.unit.engine.support import FIXTURES

TOKENIZER = ChatTokenizer.open(FIXTURES / "tiny-llama")


@given(st.text(max_size=40))
def test_the_pieces_concatenate_to_the_text(text: str) -> None:
    detokenizer = TOKENIZER.detokenizer()
    assert "".join(detokenizer.feed([token]) for token in TOKENIZER.encode(text)) == text


@given(st.text(min_size=1, max_size=10))
def test_no_piece_contains_an_incomplete_character(text: str) -> None:
    detokenizer = TOKENIZER.detokenizer()
    shown = ""
    for token in TOKENIZER.encode(text):
        shown += detokenizer.feed([token])
        assert text.startswith(shown)


def test_a_character_of_several_tokens_comes_with_its_last_one() -> None:
    tokens = TOKENIZER.encode("\U0001f6e0")
    assert len(tokens) > 1
    detokenizer = TOKENIZER.detokenizer()
    assert [detokenizer.feed([token]) for token in tokens] == [""] * (len(tokens) - 1) + ["\U0001f6e0"]


def test_an_incomplete_last_character_is_dropped() -> None:
    tokens = TOKENIZER.encode("ok \U0001f6e0")[:-1]
    assert TOKENIZER.detokenizer().feed(tokens) == "ok "


def test_special_tokens_have_no_text() -> None:
    assert TOKENIZER.detokenizer().feed([1, *TOKENIZER.encode("a"), 2]) == "a"
