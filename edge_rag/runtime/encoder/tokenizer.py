"""Tokenizes texts for encoders and batches them; a text cannot produce special tokens.

Packed: layers work on each token alone, except for attention, which receives the start of each text. So texts of any
lengths share a run without padding.

Padded: a sequence is padded to a width that follows from its own length, and shares a batch only with sequences of the
same width. So a sequence always meets the same shapes, and its result cannot depend on its neighbours.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# Its threads would compete with those of ONNX Runtime, which spin between runs.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from edge_rag.errors import InferenceFailed, ModelFolderInvalid
from edge_rag.runtime.model_folder.special_tokens import read_special_tokens_as_text

_PANIC: Final = "PanicException"


@contextmanager
def tokenizing(what: str) -> Iterator[None]:
    """Turns whatever tokenizing raises into an error of that request.

    Oniguruma gives up on an expression after ten million steps. The library panics then, which is no ``Exception``.
    """
    try:
        yield
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == _PANIC:
            raise InferenceFailed(f"{what} cannot be tokenized: {error}") from error
        raise


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


INPUT_IDS = "input_ids"
POSITIONS = "positions"
LENGTHS = "cumulative_sequence_lengths"


@dataclass(frozen=True, slots=True, eq=False)
class PackedTexts:
    """Packed texts.

    Attributes:
        input_ids: int64 [tokens], the tokens of all texts, one text after the other.
        positions: int64 [tokens], position of each token in its text.
        cumulative_sequence_lengths: int32 [texts + 1]; text s has tokens [at s, at s + 1).
    """

    input_ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    cumulative_sequence_lengths: NDArray[np.int32]

    def inputs(self) -> dict[str, NDArray[np.generic]]:
        return {
            INPUT_IDS: self.input_ids,
            POSITIONS: self.positions,
            LENGTHS: self.cumulative_sequence_lengths,
        }


def pack_texts(texts: Sequence[Sequence[int]]) -> PackedTexts:
    """Packs the token ids of texts.

    Args:
        texts: Token ids of each text, at least one text.
    """
    ends = np.cumsum([0, *map(len, texts)])
    return PackedTexts(
        np.concatenate([np.asarray(ids, dtype=np.int64) for ids in texts]),
        np.arange(ends[-1]) - np.repeat(ends[:-1], np.diff(ends)),
        ends.astype(np.int32),
    )


def plan_packs(lengths: Sequence[int], most_tokens: int) -> list[range]:
    """Divides texts, in order, into runs.

    Args:
        most_tokens: Most tokens of a run; a longer text gets a run of its own.

    Returns:
        Ranges of texts, one for each run, none empty; together they are all texts in order.
    """
    packs: list[range] = []
    first, tokens = 0, 0
    for text, length in enumerate(lengths):
        if text > first and tokens + length > most_tokens:
            packs.append(range(first, text))
            first, tokens = text, 0
        tokens += length
    return [*packs, range(first, len(lengths))] if len(lengths) > first else packs


_FINE_STEP = 4
_COARSE_STEP = 8
_FINE_UNTIL = 64


@dataclass(frozen=True, slots=True)
class LengthBatch:
    """A padded batch."""

    rows: tuple[int, ...]
    width: int


def padded_width(length: int) -> int:
    """Returns the width that a sequence of ``length`` tokens is padded to: the next multiple of 4, above 64 of 8."""
    step = _FINE_STEP if length <= _FINE_UNTIL else _COARSE_STEP
    return -(-length // step) * step


def plan_batches(lengths: Sequence[int], batch_tokens: int) -> list[LengthBatch]:
    """Groups sequences by padded width.

    Args:
        lengths: Tokens of each sequence, at least 1.
        batch_tokens: Most padded tokens in a batch; a longer sequence gets a batch of its own.

    Returns:
        Batches, shortest first; every sequence is in exactly one.
    """
    by_width: defaultdict[int, list[int]] = defaultdict(list)
    for row, length in enumerate(lengths):
        by_width[padded_width(length)].append(row)
    batches: list[LengthBatch] = []
    for width, rows in sorted(by_width.items()):
        size = max(1, batch_tokens // width)
        batches.extend(LengthBatch(tuple(rows[first : first + size]), width) for first in range(0, len(rows), size))
    return batches


LONGEST: Final = 512
"""Longest graph, tokens; longer texts are truncated, even where a model could read more."""

_LENGTHS: Final = (32, 64, 128, 256, LONGEST)


def graph_lengths(longest: int) -> tuple[int, ...]:
    """Returns the lengths of a model's graphs, tokens, ascending; the last is the longest text it reads.

    They double from 32: docs/internals/encoders.md#lengths.

    Args:
        longest: Most tokens of a text that the model reads.
    """
    last = min(longest, LONGEST)
    return (*(length for length in _LENGTHS if length < last), last)
