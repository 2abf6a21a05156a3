"""Encodes prompts with the model's chat template and decodes answers incrementally.

The template is rendered once, with placeholders. Its special tokens become ids; all other text, of the template and of
the values, is encoded with special tokens read as plain text. So a document that contains the text of an end-of-turn
token cannot end a turn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from edge_rag.errors import ModelFolderInvalid
from edge_rag.generator.prompt.chat_template import SYSTEM, USER, read_chat_template, render_chat_template, turn_slots
from edge_rag.runtime.encoder.tokenizer import tokenizing
from edge_rag.runtime.model_folder.special_tokens import read_special_tokens_as_text


class Detokenizer:
    """Decodes one answer, in complete characters. Special tokens have no text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)

    def feed(self, tokens: Iterable[int]) -> str:
        """Takes the next tokens.

        Returns:
            The complete text. Bytes of an incomplete character are held back; if the answer ends, they are dropped.
        """
        pieces = (self._stream.step(self._tokenizer, token) for token in tokens)
        return "".join(piece for piece in pieces if piece)


_SLOT = re.compile(f"({SYSTEM}|{USER})")

_SAMPLE_TURNS: Final = 5
"""Turns of the conversation that shows what a template puts around messages: three questions and two answers."""


@dataclass(frozen=True, slots=True)
class _Special:
    """A special token of the template."""

    id: int


class ChatTokenizer:
    """Encodes prompts and answers of one model."""

    def __init__(self, definition: str, template: str, variables: Mapping[str, str]) -> None:
        try:
            parsed = json.loads(definition)
            added: list[dict[str, Any]] = parsed.get("added_tokens") or []
            # Added tokens that are not marked special would still be recognized in documents.
            parsed["added_tokens"] = [{**token, "special": True} for token in added]
            self._tokenizer = Tokenizer.from_str(json.dumps(parsed))
        except Exception as error:
            raise ModelFolderInvalid(f"tokenizer.json: {error}") from error
        read_special_tokens_as_text(self._tokenizer)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._template, self._variables, self._added = template, variables, added
        self._parts = _template_parts(render_chat_template(template, variables), added, (SYSTEM, USER))

    @classmethod
    def open(cls, folder: Path) -> ChatTokenizer:
        """Reads ``tokenizer.json``, ``tokenizer_config.json`` and ``chat_template.jinja`` of a verified model folder.

        The template may be in ``tokenizer_config.json`` instead, which is optional otherwise.

        Raises:
            ModelFolderInvalid: A file is missing or unusable.
        """
        try:
            definition = (folder / "tokenizer.json").read_text("utf-8")
        except (OSError, ValueError) as error:
            raise ModelFolderInvalid(f"{folder}: {error}") from error
        return cls(definition, *read_chat_template(folder))

    @property
    def vocabulary_size(self) -> int:
        """Number of token ids, special ones included."""
        return self._tokenizer.get_vocab_size(with_added_tokens=True)

    @property
    def definition(self) -> str:
        """Content of a ``tokenizer.json`` of the same tokenizer, with special tokens recognized in text."""
        return self._tokenizer.to_str()

    def encode(self, text: str) -> list[int]:
        """Encodes plain text; special tokens in it are plain text."""
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        with tokenizing("the prompt"):
            # Unlike the encoding of a single text, this releases the GIL.
            encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def encode_chat(self, system: str, user: str) -> list[int]:
        """Encodes a system message, a user message and the beginning of the answer."""
        slots = {SYSTEM: system, USER: user}
        pieces: list[str | _Special] = []
        for part in self._parts:
            pieces += [part] if isinstance(part, _Special) else [slots.get(piece, piece) for piece in part]
        return self._encode_pieces(pieces)

    def encode_conversation(self, system: str, turns: Sequence[str]) -> list[int]:
        """Encodes a conversation and the beginning of the next answer."""
        texts = [system, *turns] if system else turns
        around = self._around(bool(system), len(turns))
        pieces: list[str | _Special] = [*self._literal(around[0])]
        for text, after in zip(texts, around[1:], strict=True):
            pieces += [text, *self._literal(after)]
        return self._encode_pieces(pieces)

    def _around(self, system: bool, turns: int) -> list[str]:
        """Returns what the template puts before, between and after the messages of a conversation.

        Nearly all templates put the same around each message, which a conversation of three questions shows; rendering
        each length by itself would start a process for it.
        """
        around = self._rendered_around(system, _SAMPLE_TURNS)
        first, periodic = len(around) - _SAMPLE_TURNS, around[-5] == around[-3] and around[-4] == around[-2]
        if not periodic:
            return self._rendered_around(system, turns)
        return [*around[:first], *around[first : first + 2] * (turns // 2), around[-1]]

    def _rendered_around(self, system: bool, turns: int) -> list[str]:
        rendered = render_chat_template(self._template, self._variables, system, turns)
        slots = (*((SYSTEM,) if system else ()), *turn_slots(turns))
        _check_once(rendered, slots)
        around, left = [], rendered
        for slot in slots:
            before, found, left = left.partition(slot)
            if not found:
                raise ModelFolderInvalid("chat template: changes the order of the messages")
            around.append(before)
        return [*around, left]

    def _literal(self, text: str) -> Iterator[str | _Special]:
        """Yields the special tokens in a text of the template, and the text between them."""
        for part in _template_parts(text, self._added, ()):
            if isinstance(part, _Special):
                yield part
            else:
                yield from part

    def _encode_pieces(self, pieces: Sequence[str | _Special]) -> list[int]:
        """Encodes special tokens as ids, and the text between two of them as a whole."""
        tokens: list[int] = []
        for is_text, run in groupby(pieces, key=lambda piece: isinstance(piece, str)):
            if is_text:
                tokens += self.encode("".join(str(piece) for piece in run))
            else:
                tokens += (piece.id for piece in run if isinstance(piece, _Special))
        return tokens

    def detokenizer(self) -> Detokenizer:
        return Detokenizer(self._tokenizer)


def _template_parts(
    rendered: str, added: Sequence[Mapping[str, Any]], slots: Sequence[str]
) -> tuple[_Special | tuple[str, ...], ...]:
    """Splits the rendered template into special tokens and runs of text and placeholders."""
    _check_once(rendered, slots)
    ids = {str(token["content"]): int(token["id"]) for token in added}
    if not ids:
        return (tuple(_SLOT.split(rendered)),)
    # A token marked rstrip or lstrip absorbs the white space beside it, as in the tokenizer.
    alternatives = "|".join(
        rf"{_blank(token, 'lstrip')}{re.escape(str(token['content']))}{_blank(token, 'rstrip')}"
        for token in sorted(added, key=lambda token: -len(str(token["content"])))
    )
    parts: list[_Special | tuple[str, ...]] = []
    for index, piece in enumerate(re.split(f"({alternatives})", rendered)):
        if index % 2:
            parts.append(_Special(ids[piece] if piece in ids else ids[piece.strip()]))
        elif piece:
            parts.append(tuple(_SLOT.split(piece)))
    return tuple(parts)


def _check_once(rendered: str, slots: Sequence[str]) -> None:
    for slot in slots:
        if rendered.count(slot) != 1:
            raise ModelFolderInvalid(
                f"chat template: contains the {slot[1:-1]} text {rendered.count(slot)} times, not once"
            )


def _blank(token: Mapping[str, Any], side: str) -> str:
    return r"\s*" if token.get(side) else ""
