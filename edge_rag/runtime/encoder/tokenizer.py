"""Tokenizes texts for encoders; a text cannot produce special tokens."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# Its threads would compete with those of ONNX Runtime, which spin between runs.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from tokenizers import Encoding, Tokenizer

from edge_rag.errors import ModelFolderInvalid
from edge_rag.runtime.model_folder.special_tokens import read_special_tokens_as_text
from edge_rag.runtime.model_folder.tokenizer_check import tokenizing


@dataclass(frozen=True, slots=True)
class TokenizedText:
    """A tokenized text, or a window of one.

    Attributes:
        ids: Token ids, special tokens included.
        type_ids: Token type of each token: 0, or 1 for the second text of a pair.
        offsets: Each token's character range in the text, without white space before it; (0, 0) for special tokens.
        special: Whether each token is a special one.
    """

    ids: tuple[int, ...]
    type_ids: tuple[int, ...]
    offsets: tuple[tuple[int, int], ...]
    special: tuple[bool, ...]


class TextTokenizer:
    """A ``tokenizer.json`` for untrusted text. Any method may be called by any thread.

    Text that looks like a special token (``[SEP]``) is read as plain characters.

    Attributes:
        max_tokens: Most tokens the model takes, special tokens included.
    """

    def __init__(self, tokenizer: Tokenizer, max_tokens: int) -> None:
        """Configures a tokenizer.

        Args:
            max_tokens: Most tokens the model takes, special tokens included.
        """
        tokenizer.no_truncation()
        tokenizer.no_padding()
        read_special_tokens_as_text(tokenizer)
        self._tokenizer = tokenizer
        self.max_tokens = max_tokens
        self._single_extra = tokenizer.num_special_tokens_to_add(False)
        self._pair_extra = tokenizer.num_special_tokens_to_add(True)

    @classmethod
    def open(cls, file: Path, max_tokens: int) -> TextTokenizer:
        """Reads a ``tokenizer.json`` of a verified model folder."""
        try:
            tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:
            raise ModelFolderInvalid(f"{file}: not a tokenizer that can be read: {error}") from error
        opened = cls(tokenizer, max_tokens)
        if max_tokens <= opened._pair_extra + 1:
            raise ModelFolderInvalid(f"{file.parent}: max_tokens {max_tokens} leaves no room for text")
        return opened

    def count(self, text: str) -> int:
        """Returns the number of a text's tokens, special tokens included, without truncation."""
        return len(self._encode(text)) + self._single_extra

    def truncated_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each text's first ``max_tokens`` tokens, special tokens included."""
        with tokenizing("a text"):
            encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        for encoding in encodings:
            encoding.truncate(self.max_tokens - self._single_extra)
        return [self._tokenizer.post_process(encoding).ids for encoding in encodings]

    def windows(self, text: str) -> list[TokenizedText]:
        """Returns a text in the fewest windows of at most ``max_tokens`` tokens, of about equal size.

        Offsets are into the whole text. A text without tokens has one window of special tokens only.
        """
        encoding = self._encode(text)
        room = self.max_tokens - self._single_extra
        count = max(1, -(-len(encoding) // room))
        encoding.truncate(max(1, -(-len(encoding) // count)))
        parts = [encoding, *encoding.overflowing]
        return [_tokenized(self._tokenizer.post_process(part), text) for part in parts]

    def pair(self, first: str, second: str) -> TokenizedText:
        """Returns two texts as one sequence of at most ``max_tokens`` tokens.

        The second is truncated first, but keeps at least half of the room; offsets are each into their own text.
        """
        one, two = self._encode(first), self._encode(second)
        room = self.max_tokens - self._pair_extra
        one.truncate(max(room - len(two), room // 2))
        two.truncate(room - len(one))
        return _tokenized(self._tokenizer.post_process(one, two), first, second)

    def _encode(self, text: str) -> Encoding:
        with tokenizing("the text"):
            # Unlike encoding a single text, this releases the interpreter lock.
            return self._tokenizer.encode_batch([text], add_special_tokens=False)[0]


def _tokenized(encoding: Encoding, *texts: str) -> TokenizedText:
    offsets = (
        (start, end) if text is None else (_first_visible(texts[text], start, end), end)
        for (start, end), text in zip(encoding.offsets, encoding.sequence_ids, strict=True)
    )
    return TokenizedText(
        ids=tuple(encoding.ids),
        type_ids=tuple(encoding.type_ids),
        offsets=tuple(offsets),
        special=tuple(flag == 1 for flag in encoding.special_tokens_mask),
    )


def _first_visible(text: str, start: int, end: int) -> int:
    """Skips white space: pieces of Metaspace and byte-level tokenizers begin with the space before a word.

    A token that starts before its sentence does would not count as the sentence's. One of white space alone stays.
    """
    first = start
    while first < end and text[first].isspace():
        first += 1
    return first if first < end else start
