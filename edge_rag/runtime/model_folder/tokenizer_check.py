"""Bounds how much a ``tokenizer.json`` can make of a text: of a character before encoding, and of a token after it.

A normalizer replaces text by text. Twenty that double a letter make a million of it, so that one word of a question
would fill the memory, long after the model was added.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Final

MOST_STEPS: Final = 64
"""Most normalizers, pre-tokenizers and decoders, each."""

MOST_GROWTH: Final = 64
"""Most characters that all replacements together may make of one."""

LONGEST_TOKEN: Final = 4096
"""Most characters of a token; published vocabularies have up to 512."""

LONGEST_AFFIX: Final = 64
"""Most characters of what is put before, between or behind tokens."""

_LONGEST_MAPPING: Final = 512
"""Most bytes that a SentencePiece map of characters may make of one; Unicode's longest is 33."""

_AFFIXES: Final = ("prepend", "continuing_subword_prefix", "end_of_word_suffix", "prefix", "suffix", "replacement")


def check_tokenizer(document: Mapping[str, object]) -> None:
    """Checks a parsed ``tokenizer.json``.

    Raises:
        ValueError: It can make more of a text than the bounds here allow; names the part.
    """
    growth = 1.0
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        growth *= _growth(document.get(part), part)
    if growth > MOST_GROWTH:
        raise ValueError(f"replacements make up to {growth:,.0f} characters of one, at most {MOST_GROWTH} are allowed")
    model = document.get("model")
    if isinstance(model, Mapping):
        _check_affixes(model, "model")
        _check_tokens(model.get("vocab"))
    if isinstance(added := document.get("added_tokens"), list):
        _check_tokens([token.get("content") for token in added if isinstance(token, Mapping)])
    for step in _steps(document.get("post_processor"), "post_processor"):
        for name in ("single", "pair"):
            if isinstance(pieces := step.get(name), list) and len(pieces) > MOST_STEPS:
                raise ValueError(f"post_processor: {name} has {len(pieces)} pieces, at most {MOST_STEPS} are allowed")


def _growth(value: object, part: str) -> float:
    growth = 1.0
    for step in _steps(value, part):
        _check_affixes(step, part)
        if step.get("type") == "Replace":
            growth *= _replacement(step)
        elif step.get("type") == "Precompiled":
            _check_characters(step.get("precompiled_charsmap"))
    return growth


def _steps(value: object, part: str) -> Iterator[Mapping[str, object]]:
    """Yields a step, or all those of sequences of steps."""
    waiting = [value]
    for _ in range(MOST_STEPS):
        if not waiting:
            return
        step = waiting.pop()
        if isinstance(step, Mapping):
            yield step
            for name in ("normalizers", "pretokenizers", "decoders", "processors"):
                if isinstance(inner := step.get(name), list):
                    waiting += inner
    if waiting:
        raise ValueError(f"{part}: has more than {MOST_STEPS} steps")


def _replacement(step: Mapping[str, object]) -> float:
    content, pattern = step.get("content"), step.get("pattern")
    length = len(content) if isinstance(content, str) else 0
    literal = pattern.get("String") if isinstance(pattern, Mapping) else None
    if isinstance(literal, str) and literal:
        return max(1.0, length / len(literal))
    return 1.0 + length  # an expression may match nothing, between all characters


def _check_affixes(step: Mapping[str, object], part: str) -> None:
    for name in _AFFIXES:
        if isinstance(text := step.get(name), str) and len(text) > LONGEST_AFFIX:
            raise ValueError(f"{part}: {name} has {len(text):,} characters, at most {LONGEST_AFFIX} are allowed")


def _check_characters(charsmap: object) -> None:
    """Checks a map in SentencePiece's form: the bytes of a trie, the trie, then texts that each end with a zero."""
    if not isinstance(charsmap, str):
        return
    try:
        content = base64.b64decode(charsmap, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"normalizer: precompiled_charsmap is not base64: {error}") from error
    trie = int.from_bytes(content[:4], "little")
    longest = max(map(len, content[4 + trie :].split(b"\0")), default=0)
    if longest > _LONGEST_MAPPING:
        raise ValueError(
            f"normalizer: precompiled_charsmap makes {longest:,} bytes of a character, at most {_LONGEST_MAPPING} are "
            "allowed"
        )


def _check_tokens(vocabulary: object) -> None:
    tokens: list[object] = []
    if isinstance(vocabulary, Mapping):
        tokens = list(vocabulary)
    elif isinstance(vocabulary, list):
        tokens = [entry[0] if isinstance(entry, list) and entry else entry for entry in vocabulary]
    longest = max((len(token) for token in tokens if isinstance(token, str)), default=0)
    if longest > LONGEST_TOKEN:
        raise ValueError(f"has a token of {longest:,} characters, at most {LONGEST_TOKEN:,} are allowed")
