"""Keeps text of documents and questions from becoming special tokens, for every kind of tokenizer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from tokenizers import Regex, Tokenizer
from tokenizers import pre_tokenizers as pre

from edge_rag.errors import ModelFolderInvalid

_AROUND: Final = (("", ""), (" ", " "), ("a", "a"))
"""Text before and after a special token's text in a trial."""


_UNKNOWN: Final = "\U000f0000"
"""A private-use character, which no vocabulary has. Unigram models name their unknown token nowhere else."""


def read_special_tokens_as_text(tokenizer: Tokenizer) -> None:
    """Reconfigures a tokenizer so that the text of a special token is encoded as plain characters.

    ``encode_special_tokens`` alone does not suffice: it only stops the search for added tokens. A Unigram model has the
    special tokens among its pieces and takes them when they score best; a BPE model may have merges that end in one.
    Such texts are divided after their first character before the model sees them; offsets and ids stay as they are.

    Raises:
        ModelFolderInvalid: A special token of one character is a piece of the model, so that it cannot be divided.
    """
    tokenizer.encode_special_tokens = True
    # Any unknown word becomes the unknown token; that its own text does too is no forgery.
    unknown = tokenizer.encode(_UNKNOWN, add_special_tokens=False).ids
    named = getattr(tokenizer.model, "unk_token", None)
    special = {
        token.content: number
        for number, token in tokenizer.get_added_tokens_decoder().items()
        if token.special and number not in unknown and token.content != named
    }
    reached = _reached(tokenizer, special)
    if not reached:
        return
    pattern = "|".join(f"{re.escape(text[0])}(?={re.escape(text[1:])})" for text in reached if len(text) > 1)
    if pattern:
        divide = pre.Split(Regex(pattern), "isolated")
        before = tokenizer.pre_tokenizer
        tokenizer.pre_tokenizer = divide if before is None else pre.Sequence([before, divide])
    if left := _reached(tokenizer, {text: special[text] for text in reached}):
        raise ModelFolderInvalid(f"tokenizer.json: text can become the special token {left[0]!r}")


def _reached(tokenizer: Tokenizer, special: dict[str, int]) -> Sequence[str]:
    """Returns the special tokens whose text, alone or beside other text, is encoded as the token."""
    return [text for text, number in special.items() if any(number in ids for ids in _encoded(tokenizer, text))]


def _encoded(tokenizer: Tokenizer, text: str) -> Iterable[list[int]]:
    trials = [before + text + after for before, after in _AROUND]
    return (encoding.ids for encoding in tokenizer.encode_batch_fast(trials, add_special_tokens=False))
