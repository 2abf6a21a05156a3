"""Tokens to text, a piece at a time, in whole characters."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream


class Detokenizer:
    """Decodes one answer. Special tokens have no text.

    Args:
        tokenizer: Its vocabulary.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)

    def feed(self, tokens: Iterable[int]) -> str:
        """Takes the next tokens.

        Returns:
            The text that is complete now. Bytes of an unfinished character wait for the rest of it; if the answer ends
            first they are never shown.
        """
        pieces = (self._stream.step(self._tokenizer, token) for token in tokens)
        return "".join(piece for piece in pieces if piece)
