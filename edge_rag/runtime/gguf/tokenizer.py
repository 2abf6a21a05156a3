"""Rebuilds a ``tokenizer.json`` from the metadata of a GGUF file.

Three kinds: byte-level BPE (``gpt2``), the BPE of SentencePiece (``llama``), whose merges follow from the scores of the
pieces, and Unigram (``t5``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers as pre

from edge_rag.errors import ModelFolderInvalid
from edge_rag.runtime.gguf.file import GgufFile

_SPACE: Final = "\u2581"
"""SentencePiece's character for a space."""

_MAX_TOKENS: Final = 1 << 20


class _Kind(IntEnum):
    """Kinds of tokens, by the numbers of ``tokenizer.ggml.token_type``."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


_CONTRACTIONS: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LETTERS_AND_REST: Final = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_TAIL: Final = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_QWEN: Final = rf"{_CONTRACTIONS}|{_LETTERS_AND_REST}|\p{{N}}|{_TAIL}"
_LLAMA_3: Final = rf"{_CONTRACTIONS}|{_LETTERS_AND_REST}|\p{{N}}{{1,3}}|{_TAIL}"
_UPPER: Final = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER: Final = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_O200K: Final = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTIONS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_TEKKEN: Final = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_PATTERNS: Final[Mapping[str, str]] = {
    "qwen2": _QWEN,
    "llama-bpe": _LLAMA_3,
    "llama3": _LLAMA_3,
    "llama-v3": _LLAMA_3,
    "smaug-bpe": _LLAMA_3,
    "dbrx": _LLAMA_3,
    "gpt-4o": _O200K,
    "tekken": _TEKKEN,
}
"""Regular expressions by ``tokenizer.ggml.pre``, as the models' own tokenizers have them."""

_DIGITS_APART: Final = frozenset({"smollm", "refact", "starcoder", "granite-docling"})
_PLAIN: Final = frozenset({"gpt-2", "gpt2", "default"})
_COMPOSED: Final = frozenset({"qwen2"})
"""Tokenizers that compose characters (NFC) first."""


def read_tokenizer(file: GgufFile) -> Tokenizer:
    """Rebuilds the tokenizer of a file."""
    tokens = file.strings("tokenizer.ggml.tokens")
    if not 1 <= len(tokens) <= _MAX_TOKENS:
        raise _invalid(file, f"tokenizer.ggml.tokens has {len(tokens):,} tokens")
    if len(set(tokens)) != len(tokens):
        raise _invalid(file, "tokenizer.ggml.tokens has a token twice")
    kinds = _kinds(file, len(tokens))
    name = file.text("tokenizer.ggml.model")
    match name:
        case "gpt2":
            tokenizer = _byte_level(file, tokens)
        case "llama":
            tokenizer = _sentencepiece_bpe(file, tokens, kinds)
        case "t5":
            tokenizer = _unigram(file, tokens, kinds)
        case _:
            raise _invalid(file, f"tokenizer.ggml.model is {name!r}; gpt2, llama and t5 can be rebuilt")
    for kind, special in ((_Kind.CONTROL, True), (_Kind.USER_DEFINED, False)):
        added = [AddedToken(tokens[number], special=special, normalized=False) for number in _of(kinds, kind)]
        tokenizer.add_tokens(added)
    if tokenizer.get_vocab_size() != len(tokens):
        raise _invalid(file, f"of its {len(tokens):,} tokens {tokenizer.get_vocab_size():,} could be rebuilt")
    return tokenizer


def _kinds(file: GgufFile, count: int) -> NDArray[np.int64]:
    if "tokenizer.ggml.token_type" not in file.metadata:
        return np.full(count, _Kind.NORMAL, np.int64)
    return file.numbers("tokenizer.ggml.token_type", count).astype(np.int64)


def _of(kinds: NDArray[np.int64], *wanted: _Kind) -> list[int]:
    """Returns the ids of the tokens of a kind."""
    return [int(number) for number in np.flatnonzero(np.isin(kinds, wanted))]


def _byte_level(file: GgufFile, tokens: Sequence[str]) -> Tokenizer:
    ids = {token: number for number, token in enumerate(tokens)}
    merges: list[tuple[str, str]] = []
    for merge in file.strings("tokenizer.ggml.merges"):
        first, space, second = merge.partition(" ")
        if not space or first not in ids or second not in ids or first + second not in ids:
            raise _invalid(file, f"tokenizer.ggml.merges has {merge[:80]!r}, which joins no two tokens to a third")
        merges.append((first, second))
    tokenizer = Tokenizer(models.BPE(ids, merges, ignore_merges="llama" in file.text("tokenizer.ggml.pre", "default")))
    tokenizer.pre_tokenizer = _pre_tokenizer(file)
    tokenizer.decoder = decoders.ByteLevel()
    if file.text("tokenizer.ggml.pre", "default") in _COMPOSED:
        tokenizer.normalizer = normalizers.NFC()
    return tokenizer


def _pre_tokenizer(file: GgufFile) -> pre.PreTokenizer:
    name = file.text("tokenizer.ggml.pre", "default")
    if name in _PLAIN:
        return pre.ByteLevel(add_prefix_space=False, use_regex=True)
    if name in _DIGITS_APART:
        return pre.Sequence([pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False)])
    if name in _PATTERNS:
        divided = pre.Split(Regex(_PATTERNS[name]), "isolated")
        return pre.Sequence([divided, pre.ByteLevel(add_prefix_space=False, use_regex=False)])
    known = ", ".join(sorted({*_PATTERNS, *_DIGITS_APART, *_PLAIN}))
    raise _invalid(file, f"tokenizer.ggml.pre is {name!r}; known are {known}")


def _sentencepiece_bpe(file: GgufFile, tokens: Sequence[str], kinds: NDArray[np.int64]) -> Tokenizer:
    scores = file.numbers("tokenizer.ggml.scores", len(tokens)).astype(np.float64)
    ids = {token: number for number, token in enumerate(tokens)}
    pieces = _of(kinds, _Kind.NORMAL, _Kind.USER_DEFINED)
    ranked = sorted(
        (-scores[number], ids[first], ids[second])
        for number in pieces
        for first, second in _splits(tokens[number], ids)
    )
    merges = [(tokens[first], tokens[second]) for _, first, second in ranked]
    unknown = next((tokens[number] for number in _of(kinds, _Kind.UNKNOWN)), None)
    tokenizer = Tokenizer(models.BPE(ids, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    steps: list[normalizers.Normalizer] = [normalizers.Replace(" ", _SPACE)]
    ends: list[decoders.Decoder] = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if file.flag("tokenizer.ggml.add_space_prefix", True):
        steps.insert(0, normalizers.Prepend(_SPACE))
        ends.append(decoders.Strip(" ", 1, 0))
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.decoder = decoders.Sequence(ends)
    return tokenizer


def _splits(piece: str, ids: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    for end in range(1, len(piece)):
        first, second = piece[:end], piece[end:]
        if first in ids and second in ids:
            yield first, second


def _unigram(file: GgufFile, tokens: Sequence[str], kinds: NDArray[np.int64]) -> Tokenizer:
    scores = file.numbers("tokenizer.ggml.scores", len(tokens)).astype(np.float64)
    pieces = list(zip(tokens, scores.tolist(), strict=True))
    tokenizer = Tokenizer(models.Unigram(pieces, next(iter(_of(kinds, _Kind.UNKNOWN)), None), False))
    prefix = "always" if file.flag("tokenizer.ggml.add_space_prefix", True) else "never"
    tokenizer.pre_tokenizer = pre.Metaspace(prepend_scheme=prefix)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=prefix)
    return tokenizer


def _invalid(file: GgufFile, what: str) -> ModelFolderInvalid:
    return ModelFolderInvalid(f"{file.path.name}: {what}")
