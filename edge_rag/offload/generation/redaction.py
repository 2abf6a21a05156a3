"""Redaction: replaces matches of patterns by placeholders, and placeholders in the reply by the original text.

A value has the same placeholder in all texts of a request, so that the model can distinguish values. Patterns are RE2
expressions, which match in linear time. Placeholders look like ``<<P1>>``; if a text contains ``<<P``, the letter is
repeated until no text contains the prefix.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import re2

from edge_rag.errors import ConfigurationError

_MAX_DIGITS: Final = 6


class Redactor:
    """Finds text that must not leave.

    Args:
        patterns: Regular expressions, RE2 syntax.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        options = re2.Options()
        options.log_errors = False
        self._patterns = []
        for pattern in patterns:
            try:
                compiled = re2.compile(pattern, options)
            except re2.error as error:
                raise ConfigurationError(f"offload.redact: {pattern!r}: {_message(error)}") from error
            if compiled.fullmatch(""):
                raise ConfigurationError(f"offload.redact: {pattern!r} matches the empty text")
            self._patterns.append(compiled)

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def begin(self, texts: Iterable[str]) -> Redaction:
        letters, everything = "P", "\n".join(texts)
        while f"<<{letters}" in everything:
            letters += "P"
        return Redaction(self._patterns, f"<<{letters}")


class Redaction:
    """The placeholders of one request. Made by ``Redactor.begin``."""

    def __init__(self, patterns: Sequence[Any], opening: str) -> None:
        self._patterns = patterns
        self._opening = opening
        self._values: dict[str, str] = {}
        self._placeholders: dict[str, str] = {}

    @property
    def replaced(self) -> int:
        return len(self._values)

    def redact(self, text: str) -> str:
        """Returns the text with every match of a pattern replaced by its placeholder; overlapping matches are one."""
        spans = sorted(match.span() for pattern in self._patterns for match in pattern.finditer(text))
        pieces, at, index = [], 0, 0
        while index < len(spans):
            start, end = spans[index]
            while index < len(spans) and spans[index][0] < max(end, start + 1):
                end = max(end, spans[index][1])
                index += 1
            if end > start:
                pieces += [text[at:start], self._placeholder(text[start:end])]
                at = end
        return "".join((*pieces, text[at:]))

    def restorer(self) -> Restorer:
        return Restorer(self._opening, dict(self._placeholders))

    def _placeholder(self, value: str) -> str:
        if value not in self._values:
            placeholder = f"{self._opening}{len(self._values) + 1}>>"
            self._values[value] = placeholder
            self._placeholders[placeholder] = value
        return self._values[value]


class Restorer:
    """Restores values in streamed text; a suffix that may begin a placeholder is held back."""

    def __init__(self, opening: str, values: dict[str, str]) -> None:
        self._opening = opening
        self._values = values
        self._held = ""

    def feed(self, text: str) -> str:
        """Takes the next piece; returns the text that is complete."""
        text = self._held + text
        pieces, at = [], 0
        while (start := text.find(self._opening, at)) >= 0:
            end = text.find(">>", start)
            if end < 0:
                if self._may_be_placeholder(text[start:]):
                    break
                end = start + len(self._opening) - 2
            whole = text[start : end + 2]
            pieces += [text[at:start], self._values.get(whole, whole)]
            at = start + len(whole)
        rest = text[at:]
        keep = len(text) - start if start >= 0 else _overlap(rest, self._opening)
        self._held = rest[len(rest) - keep :] if keep else ""
        return "".join((*pieces, rest[: len(rest) - keep]))

    def flush(self) -> str:
        held, self._held = self._held, ""
        return held

    def _may_be_placeholder(self, prefix: str) -> bool:
        number = prefix[len(self._opening) :].removesuffix(">")
        return len(number) <= _MAX_DIGITS and (not number or (number.isascii() and number.isdigit()))


def _overlap(text: str, opening: str) -> int:
    return next((n for n in range(min(len(opening) - 1, len(text)), 0, -1) if text.endswith(opening[:n])), 0)


def _message(error: re2.error) -> str:
    cause = error.args[0] if error.args else ""
    return cause.decode("utf-8", "replace") if isinstance(cause, bytes) else str(cause)
