"""Text to tokens, with the model's chat template. Only the template's own text can become special tokens.

The template is rendered once, around placeholders. Its special tokens become ids; all other text, the template's and
what is put in for the placeholders, is encoded with special tokens read as plain text. So a document that holds the
text of an end-of-turn token ends nothing.

Tokens to text, a piece at a time, in whole characters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from edge_rag.errors import ModelFolderInvalid


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


_SYSTEM = "\ue000system\ue001"
_USER = "\ue000user\ue001"
_SLOT = re.compile(f"({_SYSTEM}|{_USER})")


@dataclass(frozen=True, slots=True)
class _Special:
    """A token that the template put there."""

    id: int


class ChatTokenizer:
    """Encodes prompts and answers of one model.

    Args:
        definition: Content of ``tokenizer.json``.
        template: The chat template, Jinja.
        variables: Values the template may use besides the messages, such as ``bos_token``.

    Raises:
        ModelFolderInvalid: One of them cannot be used; says why.
    """

    def __init__(self, definition: str, template: str, variables: Mapping[str, str]) -> None:
        try:
            parsed = json.loads(definition)
            added: list[dict[str, Any]] = parsed.get("added_tokens") or []
            # Tokens that only count as special when marked so would still be read out of documents.
            parsed["added_tokens"] = [{**token, "special": True} for token in added]
            self._tokenizer = Tokenizer.from_str(json.dumps(parsed))
        except Exception as error:
            raise ModelFolderInvalid(f"tokenizer.json: {error}") from error
        self._tokenizer.encode_special_tokens = True
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._layout = _layout(_render(template, variables), added)

    @classmethod
    def open(cls, folder: Path) -> ChatTokenizer:
        """Reads ``tokenizer.json``, ``tokenizer_config.json`` and ``chat_template.jinja`` of a verified model folder.

        The template may also stand in ``tokenizer_config.json``, which may be missing otherwise.

        Raises:
            ModelFolderInvalid: A file is missing or cannot be used; names it.
        """
        try:
            definition = (folder / "tokenizer.json").read_text("utf-8")
            settings_file, template_file = folder / "tokenizer_config.json", folder / "chat_template.jinja"
            settings = json.loads(settings_file.read_text("utf-8")) if settings_file.exists() else {}
            template = template_file.read_text("utf-8") if template_file.exists() else settings.get("chat_template")
        except (OSError, ValueError) as error:
            raise ModelFolderInvalid(f"{folder}: {error}") from error
        if not isinstance(template, str):
            raise ModelFolderInvalid(f"{folder}: no chat template in chat_template.jinja or tokenizer_config.json")
        return cls(definition, template, _token_variables(settings))

    @property
    def vocabulary_size(self) -> int:
        """Number of token ids, special ones included."""
        return self._tokenizer.get_vocab_size(with_added_tokens=True)

    @property
    def definition(self) -> str:
        """Content of a ``tokenizer.json`` that makes the same tokenizer, but reads special tokens out of text."""
        return self._tokenizer.to_str()

    def encode(self, text: str) -> list[int]:
        """Encodes plain text; the text of special tokens is text."""
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Encodes each text on its own."""
        # Other than encoding a single text, this lets other threads of Python run meanwhile.
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

    def encode_chat(self, system: str, user: str) -> list[int]:
        """Encodes a system turn, a user turn and the beginning of the answer."""
        texts = {_SYSTEM: system, _USER: user}
        tokens: list[int] = []
        for part in self._layout:
            if isinstance(part, _Special):
                tokens.append(part.id)
            else:
                tokens += self.encode("".join(texts.get(piece, piece) for piece in part))
        return tokens

    def detokenizer(self) -> Detokenizer:
        """Returns a decoder for one answer."""
        return Detokenizer(self._tokenizer)


def _render(template: str, variables: Mapping[str, str]) -> str:
    """Renders the template around the placeholders."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = _refuse
    messages = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": _USER}]
    try:
        return environment.from_string(template).render(
            messages=messages, add_generation_prompt=True, enable_thinking=False, **variables
        )
    except jinja2.TemplateError as error:
        raise ModelFolderInvalid(f"chat template: {error}") from error


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _layout(rendered: str, added: Sequence[Mapping[str, Any]]) -> tuple[_Special | tuple[str, ...], ...]:
    """Cuts the rendered template into special tokens and, between them, runs of text and placeholders."""
    for slot in (_SYSTEM, _USER):
        if rendered.count(slot) != 1:
            raise ModelFolderInvalid(
                f"chat template: holds the {slot[1:-1]} text {rendered.count(slot)} times, not once"
            )
    ids = {str(token["content"]): int(token["id"]) for token in added}
    if not ids:
        return (tuple(_SLOT.split(rendered)),)
    # A token marked rstrip or lstrip swallows the white space beside it, as the tokenizer itself would have it.
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


def _blank(token: Mapping[str, Any], side: str) -> str:
    return r"\s*" if token.get(side) else ""


def _token_variables(settings: Mapping[str, Any]) -> dict[str, str]:
    """Returns ``bos_token`` and ``eos_token`` for the template; they may be written as text or as an object."""
    variables = {}
    for name in ("bos_token", "eos_token"):
        token = settings.get(name)
        if isinstance(token, Mapping):
            token = token.get("content")
        variables[name] = token if isinstance(token, str) else ""
    return variables
