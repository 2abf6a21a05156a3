"""The byte-level BPE vocabulary and the chat template."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

PADDING, TURN_BEGINS, TURN_ENDS = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL_TOKENS = (PADDING, TURN_BEGINS, TURN_ENDS)
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
_PIECE = re.compile(r" ?[^\W\d_]+| ?\d+| ?[^\s\w]+")
_LONGEST_PIECE = 20
_FLATTENING = 0.6
"""Power that words' counts are raised to, so that the commonest words of these packages weigh less against the rest."""


def train_vocabulary(sentences: Iterable[tuple[str, ...]], size: int) -> tokenizers.Tokenizer:
    """Learns a vocabulary.

    Args:
        sentences: As words.
        size: Entries, the special tokens and all bytes among them.

    Returns:
        Its ids 0, 1 and 2 are the special tokens.
    """
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        min_frequency=2,
        show_progress=False,
    )
    tokenizer.train_from_iterator(_weighted(_pieces(sentences)), trainer)
    return tokenizer


def _pieces(sentences: Iterable[tuple[str, ...]]) -> Mapping[str, int]:
    counts: Counter[str] = Counter()
    for sentence in sentences:
        counts.update(_PIECE.findall(" " + " ".join(sentence)))
    return counts


def _weighted(counts: Mapping[str, int]) -> Iterator[str]:
    for piece, count in sorted(counts.items()):
        if count > 1 and len(piece) < _LONGEST_PIECE:
            yield from (piece for _ in range(max(1, int(count**_FLATTENING))))


class WordEncoder:
    """Encodes text word by word, which for this vocabulary gives what encoding the whole would.

    Args:
        tokenizer: Byte-level BPE that never merges over white space.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids = lru_cache(400_000)(self._encode)
        self.end = SPECIAL_TOKENS.index(TURN_ENDS)

    def text(self, text: str) -> list[int]:
        """Returns the ids of a piece of the prompt's layout."""
        return list(self._ids(text))

    def words(self, words: Iterable[str]) -> list[int]:
        """Returns the ids of words, each after a blank."""
        return [token for word in words for token in self._ids(" " + word)]

    def pieces(self) -> list[str]:
        """Returns every entry of the vocabulary that can stand in a word."""
        ordinary = range(len(SPECIAL_TOKENS), self._tokenizer.get_vocab_size())
        decoded = (self._tokenizer.decode([token]).strip() for token in ordinary)
        return [piece for piece in decoded if piece and "\ufffd" not in piece and not re.search(r"\s", piece)]

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)
