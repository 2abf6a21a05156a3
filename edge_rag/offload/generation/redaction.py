"""Redaction: what matches a pattern leaves as a placeholder, and placeholders that come back become the text again.

One value has one placeholder, in all texts of a request, so that the model can still tell values apart. Patterns are
RE2's, whose time is linear in the text. Placeholders look like ``<<P1>>``; where a text happens to hold ``<<P``, the
letter is repeated until none does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import re2

from edge_rag.errors import ConfigurationError

_LONGEST_NUMBER: Final = 6


class Redactor:
    """Finds what must not leave.

    Args:
        patterns: Regular expressions, RE2's syntax.

    Raises:
        ConfigurationError: One is none, or matches the empty text.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        options = re2.Options()
        options.log_errors = False
        self._patterns = []
        for pattern in patterns:
            try:
                compiled = re2.compile(pattern, options)
            except re2.error as error:
                raise ConfigurationError(f"offload.redact: {pattern!r}: {_words(error)}") from error
            if compiled.fullmatch(""):
                raise ConfigurationError(f"offload.redact: {pattern!r} matches the empty text")
            self._patterns.append(compiled)

    def __bool__(self) -> bool:
        """Whether there is any pattern."""
        return bool(self._patterns)

    def begin(self, texts: Iterable[str]) -> Redaction:
        """Begins the redaction of a request.

        Args:
            texts: All texts that will be asked for.
        """
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
        """Number of different values that were replaced."""
        return len(self._values)

    def redact(self, text: str, positions: Sequence[int] = ()) -> tuple[str, tuple[int, ...]]:
        """Replaces every match of a pattern by its placeholder; what overlaps is one match.

        Returns:
            The text, and where in it the given positions are; one inside a match is moved behind its placeholder.
        """
        spans = sorted(match.span() for pattern in self._patterns for match in pattern.finditer(text))
        edits: list[tuple[int, int, str]] = []
        index = 0
        while index < len(spans):
            start, end = spans[index]
            while index < len(spans) and spans[index][0] < max(end, start + 1):
                end = max(end, spans[index][1])
                index += 1
            if end > start:
                edits.append((start, end, self._placeholder(text[start:end])))
        pieces, at = [], 0
        for start, end, placeholder in edits:
            pieces += [text[at:start], placeholder]
            at = end
        return "".join((*pieces, text[at:])), tuple(_moved(position, edits) for position in positions)

    def restorer(self) -> Restorer:
        """Returns what puts the values back into one stream."""
        return Restorer(self._opening, dict(self._placeholders))

    def _placeholder(self, value: str) -> str:
        if value not in self._values:
            placeholder = f"{self._opening}{len(self._values) + 1}>>"
            self._values[value] = placeholder
            self._placeholders[placeholder] = value
        return self._values[value]


class Restorer:
    """Puts values back into text that comes in pieces; what may be the beginning of a placeholder is held back.

    Args:
        opening: What every placeholder begins with.
        values: Value by placeholder.
    """

    def __init__(self, opening: str, values: dict[str, str]) -> None:
        self._opening = opening
        self._values = values
        self._held = ""

    def feed(self, text: str) -> str:
        """Takes the next piece and returns the text that is certain now."""
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
        """Returns what was held back, now that no more text comes."""
        held, self._held = self._held, ""
        return held

    def _may_be_placeholder(self, beginning: str) -> bool:
        number = beginning[len(self._opening) :].removesuffix(">")
        return len(number) <= _LONGEST_NUMBER and (not number or (number.isascii() and number.isdigit()))


def _moved(position: int, edits: Sequence[tuple[int, int, str]]) -> int:
    shift = 0
    for start, end, placeholder in edits:
        if position <= start:
            break
        shift += len(placeholder) - (min(position, end) - start)
    return position + shift


def _overlap(text: str, opening: str) -> int:
    """Returns the length of the longest end of the text that begins the opening."""
    return next((n for n in range(min(len(opening) - 1, len(text)), 0, -1) if text.endswith(opening[:n])), 0)


def _words(error: re2.error) -> str:
    cause = error.args[0] if error.args else ""
    return cause.decode("utf-8", "replace") if isinstance(cause, bytes) else str(cause)
