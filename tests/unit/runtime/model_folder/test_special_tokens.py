from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from edge_rag.errors import ModelFolderInvalid
from edge_rag.runtime.model_folder.special_tokens import read_special_tokens_as_text

SPECIAL = ("<s>", "</s>", "<pad>", "<mask>")
LETTERS = tuple("<>/smaskpdgo[]|_▁")


def unigram() -> Tokenizer:
    pieces = dict.fromkeys((*SPECIAL, "<unk>"), 0.0) | dict.fromkeys(LETTERS, -9.0) | {"▁go": -3.0}
    tokenizer = Tokenizer(models.Unigram(list(pieces.items()), unk_id=list(pieces).index("<unk>")))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return tokenizer


def unigram_without_a_pre_tokenizer() -> Tokenizer:
    tokenizer = unigram()
    tokenizer.pre_tokenizer = None
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    return tokenizer


def sentencepiece_bpe() -> Tokenizer:
    """Its merges end in the special tokens, as those made from a SentencePiece model may."""
    merges, pieces = [], [*SPECIAL, "<unk>", *LETTERS]
    for text in SPECIAL:
        for end in range(2, len(text) + 1):
            merges.append((text[: end - 1], text[end - 1]))
            pieces.append(text[:end])
    ids = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.BPE(ids, list(dict.fromkeys(merges)), unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    return tokenizer


def byte_level_bpe() -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({piece: number for number, piece in enumerate([*SPECIAL, *alphabet])}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def word_piece() -> Tokenizer:
    pieces = [*SPECIAL, "<unk>", *LETTERS, *("##" + letter for letter in LETTERS)]
    tokenizer = Tokenizer(models.WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


def word_level() -> Tokenizer:
    pieces = [*SPECIAL, "<unk>", "go"]
    tokenizer = Tokenizer(models.WordLevel({piece: number for number, piece in enumerate(pieces)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer


KINDS = (unigram, unigram_without_a_pre_tokenizer, sentencepiece_bpe, byte_level_bpe, word_piece, word_level)


def protected(kind: Callable[[], Tokenizer]) -> tuple[Tokenizer, set[int | None]]:
    tokenizer = kind()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    read_special_tokens_as_text(tokenizer)
    return tokenizer, {tokenizer.token_to_id(text) for text in SPECIAL}


@pytest.mark.parametrize("kind", KINDS)
@given(parts=st.lists(st.sampled_from((*SPECIAL, *LETTERS, " ", "go")), max_size=12))
def test_no_text_becomes_a_special_token(kind: Callable[[], Tokenizer], parts: list[str]) -> None:
    tokenizer, special = protected(kind)
    assert special.isdisjoint(tokenizer.encode("".join(parts), add_special_tokens=False).ids)


@pytest.mark.parametrize("kind", [unigram, sentencepiece_bpe, word_level])
def test_without_the_protection_some_kinds_read_special_tokens_in_text(kind: Callable[[], Tokenizer]) -> None:
    tokenizer = kind()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    tokenizer.encode_special_tokens = True
    assert tokenizer.token_to_id("</s>") in tokenizer.encode("</s>", add_special_tokens=False).ids


@pytest.mark.parametrize("kind", [unigram, sentencepiece_bpe])
def test_offsets_cover_the_text_of_a_special_token(kind: Callable[[], Tokenizer]) -> None:
    tokenizer, _ = protected(kind)
    offsets = tokenizer.encode("go </s> go", add_special_tokens=False).offsets
    assert {place for start, end in offsets for place in range(start, end)} >= set(range(3, 7))


def test_a_special_token_of_one_character_that_is_a_piece_is_refused() -> None:
    tokenizer = unigram()
    tokenizer.add_special_tokens([AddedToken("|", special=True)])
    with pytest.raises(ModelFolderInvalid, match=r"tokenizer\.json.*'\|'"):
        read_special_tokens_as_text(tokenizer)


@pytest.mark.parametrize("kind", [unigram, sentencepiece_bpe, word_piece, word_level])
def test_an_unknown_word_may_be_the_unknown_token(kind: Callable[[], Tokenizer]) -> None:
    tokenizer = kind()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in (*SPECIAL, "<unk>")])
    read_special_tokens_as_text(tokenizer)
    assert tokenizer.token_to_id("<unk>") in tokenizer.encode("\u4e16", add_special_tokens=False).ids
