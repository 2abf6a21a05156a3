from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from edge_rag.errors import InferenceFailed, ModelFolderInvalid
from edge_rag.runtime.encoder.tokenizer import TextTokenizer

FILE = Path(__file__).parents[4] / "models" / "minilm-l6" / "tokenizer.json"
CLS, SEP = 101, 102
TOKENIZER = TextTokenizer.open(FILE, 16)
PLAIN = Tokenizer.from_file(str(FILE))
PLAIN.encode_special_tokens = True


def test_a_text_that_looks_like_a_special_token_is_read_as_plain_characters() -> None:
    (read,) = TOKENIZER.windows("stop [SEP] go")
    assert read.ids.count(SEP) == 1
    assert read.ids[-1] == SEP
    assert ["stop [SEP] go"[start:end] for start, end in read.offsets[1:-1]] == ["stop", "[", "SEP", "]", "go"]


def test_a_long_text_is_cut_to_its_beginning_with_its_special_tokens_kept() -> None:
    text = "pump " * 40
    short, cut = TOKENIZER.truncated_ids(["[SEP]", text])
    assert short == PLAIN.encode("[SEP]").ids
    assert cut == PLAIN.encode("pump " * 14).ids
    assert len(cut) == 16
    assert TOKENIZER.count(text) == 42


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=200))
def test_windows_hold_every_token_of_a_text_once_and_none_is_too_long(text: str) -> None:
    windows = TOKENIZER.windows(text)
    assert all(len(window.ids) <= 16 for window in windows)
    kept = [
        (token, span)
        for window in windows
        for token, span, special in zip(window.ids, window.offsets, window.special, strict=True)
        if not special
    ]
    whole = PLAIN.encode(text, add_special_tokens=False)
    assert kept == list(zip(whole.ids, whole.offsets, strict=True))
    assert TOKENIZER.count(text) == len(whole.ids) + 2


def test_windows_are_of_about_equal_size() -> None:
    assert [len(window.ids) for window in TOKENIZER.windows("pump " * 15)] == [10, 9]


def test_an_empty_text_is_one_window_of_special_tokens() -> None:
    (window,) = TOKENIZER.windows("")
    assert window.ids == (CLS, SEP)
    assert all(window.special)


def test_a_pair_marks_its_second_text() -> None:
    pair = TOKENIZER.pair("how often", "every month")
    assert pair.type_ids == (0, 0, 0, 0, 1, 1, 1)
    assert pair.ids[-1] == SEP


@pytest.mark.parametrize(("first", "second"), [(3, 90), (90, 3), (90, 90), (6, 7), (0, 50)])
def test_a_pair_that_is_too_long_keeps_as_much_of_the_first_text_as_leaves_room(first: int, second: int) -> None:
    pair = TOKENIZER.pair("pump " * first, "valve " * second)
    assert len(pair.ids) == min(16, first + second + 3)
    kept = sum(1 for kind, special in zip(pair.type_ids, pair.special, strict=True) if kind == 0 and not special)
    assert kept == min(first, max(13 - second, 6))


def test_a_text_that_is_not_unicode_is_a_failed_inference() -> None:
    with pytest.raises(InferenceFailed, match="cannot be tokenized"):
        TOKENIZER.truncated_ids(["pump", "\ud800"])


def test_a_file_that_is_no_tokenizer_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelFolderInvalid, match=r"tokenizer\.json"):
        TextTokenizer.open(tmp_path / "tokenizer.json", 16)


def test_a_limit_that_leaves_no_room_for_text_is_refused() -> None:
    with pytest.raises(ModelFolderInvalid, match="max_tokens 3"):
        TextTokenizer.open(FILE, 3)


@pytest.mark.parametrize("kind", ["metaspace", "byte level"])
def test_a_token_begins_behind_the_space_that_its_piece_contains(kind: str) -> None:
    """Otherwise a sentence, which begins behind the space, would lose its first word."""
    letters = {chr(letter): -9.0 for letter in range(ord("a"), ord("z") + 1)}
    if kind == "metaspace":
        pieces = {"<unk>": 0.0, "▁": -9.0, ".": -2.0, "▁close": -1.0, "▁valve": -1.0, "▁it": -1.0} | letters
        tokenizer = Tokenizer(models.Unigram(list(pieces.items()), 0))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    else:
        words = dict.fromkeys(["close", "Ġclose", "Ġvalve", ".", "Ġ"])
        tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, "."))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    text = "close valve. close  valve"
    (read,) = TextTokenizer(tokenizer, 64).windows(text)
    said = [text[start:end] for start, end in read.offsets]
    assert [word for word in said if word.strip()] == ["close", "valve", ".", "close", "valve"]
    sentence = text.index("close", 1)
    assert [text[start:end] for start, end in read.offsets if start >= sentence and text[start:end].strip()] == [
        "close",
        "valve",
    ]


def test_tokens_of_a_pair_begin_behind_the_space_too() -> None:
    pieces = {"<unk>": 0.0, "▁": -9.0, "▁close": -1.0, "▁valve": -1.0}
    tokenizer = Tokenizer(models.Unigram(list(pieces.items()), 0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    pair = TextTokenizer(tokenizer, 64).pair("close valve", "valve close")
    assert pair.offsets == ((0, 5), (6, 11), (0, 5), (6, 11))
