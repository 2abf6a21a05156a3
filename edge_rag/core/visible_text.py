"""Escapes characters that a reader cannot see or that steer a terminal: text of documents and names is untrusted.

Escaped are control characters, format characters (among them all that change the direction of text, and tags), private,
unassigned and surrogate code points, line separators, and letters that Unicode calls fillers. Line feed and tab stay.

Three kinds of invisible characters have a place in honest text, and stay exactly there:

- the zero-width joiner and non-joiner between two letters, marks or emoji from U+0600 on: Persian, Hindi and other
  languages are misspelt without them, and families of emoji fall apart. Between Latin, Greek or Cyrillic letters they
  only make two words look alike, and several in a row can hide data.
- a variation selector directly behind a symbol or letter that it changes; a second one in a row hides data.
- signs that Arabic and other scripts place around numbers, which are format characters but visible.

Characters newer than this Python's Unicode tables are escaped.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from typing import Final

_SUSPICIOUS: Final = re.compile(
    r"[^\t\n\x20-\x7e\xa1-\xac\xae-\u02ff\u0400-\u0481\u3041-\u3096\u4e00-\u9fff\uac00-\ud7a3]"
)
"""Characters that need a closer look; a fast path for most text."""

_JOINERS: Final = frozenset("\u200c\u200d")
_LEAST_JOINED: Final = "\u0600"
_JOINED_CATEGORIES: Final = frozenset(("Lo", "Lm", "Mn", "Mc", "So", "Sk", "Nd"))
_VISIBLE_FORMATS: Final = frozenset(
    "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
)
"""Unicode's Prepended_Concatenation_Mark."""

_KEYS: Final = frozenset("0123456789#*")
_FILLERS: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0")
"""Letters and marks with Unicode's Default_Ignorable_Code_Point."""

_RIGHT_TO_LEFT_LETTER: Final = "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001eeff]"
_RIGHT_TO_LEFT: Final = re.compile(rf"{_RIGHT_TO_LEFT_LETTER}+(?:[ 0-9._\u200c\u200d-]+{_RIGHT_TO_LEFT_LETTER}+)*")
"""Letters, with spaces, digits and the punctuation of names between them."""

_Escape = Callable[[str], str]


def escape_invisible(text: str, before: str = "", after: str = "") -> str:
    r"""Escapes what cannot be seen, as ``\x1b``, ``\u202e`` or ``\U000e0041``.

    Args:
        before: The character before it, or nothing; decides about joiners and selectors.
    """
    return _SUSPICIOUS.sub(lambda found: _shown(found, before, after, _python_escape), text)


def escape_invisible_json(text: str) -> str:
    r"""Escapes what cannot be seen in JSON text, as ``\u202e`` or ``\udb40\udc41``; the value stays the same.

    Args:
        text: Valid JSON, without line breaks or tabs between its tokens; lone surrogates in its strings are allowed.
    """
    return _SUSPICIOUS.sub(lambda found: _shown(found, "", "", _json_escape), text)


def isolate_right_to_left(text: str) -> str:
    """Puts isolates of Unicode's bidirectional algorithm (UAX #9) around runs of letters written from right to left.

    In a line of words, names and numbers from several sources, a name in Arabic or Hebrew stays in its place then, and
    moves no number or bracket beside it. Text of one source needs none: its first letter decides its direction.
    """
    return text if text.isascii() else _RIGHT_TO_LEFT.sub("\u2068\\g<0>\u2069", text)


class InvisibleEscaper:
    """Escapes streamed text as ``escape_invisible`` would escape the whole."""

    def __init__(self) -> None:
        self._before = ""
        self._held = ""

    def feed(self, text: str) -> str:
        """Returns the next text, without a joiner at its end, which depends on what follows."""
        text = self._held + text
        self._held = ""
        while text and text[-1] in _JOINERS:
            text, self._held = text[:-1], text[-1] + self._held
        shown = escape_invisible(text, self._before, self._held[:1])
        self._before = text[-1:] or self._before
        return shown

    def end(self) -> str:
        """Returns the text that was held back."""
        return escape_invisible(self._held, self._before)


def _shown(found: re.Match[str], before: str, after: str, escape: _Escape) -> str:
    character = found[0]
    if _is_visible(character):
        return character
    text, at = found.string, found.start()
    previous = text[at - 1] if at else before
    following = text[at + 1] if at + 1 < len(text) else after
    if character in _JOINERS:
        shown = _is_joined(previous) and _is_joined(following)
    else:
        shown = _is_selector(character) and _is_varied(previous)
    return character if shown else escape(character)


@lru_cache(maxsize=4096)
def _is_visible(character: str) -> bool:
    """Whether a character can be seen, or is white space that only separates words."""
    if character in _FILLERS or _is_selector(character):
        return False
    return (
        character.isprintable()
        or character in "\t\n"
        or character in _VISIBLE_FORMATS
        or unicodedata.category(character) == "Zs"
    )


def _is_selector(character: str) -> bool:
    return "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"


def _is_varied(character: str) -> bool:
    """Whether a selector behind a character can have a meaning: digits and two signs become keys."""
    if not character or character.isspace():
        return False
    return character in _KEYS or (not character.isascii() and _is_visible(character))


def _is_joined(character: str) -> bool:
    """Whether a joiner beside a character can have a meaning."""
    if not character:
        return False
    if _is_selector(character):
        return True
    known = unicodedata.category(character) in _JOINED_CATEGORIES
    return character >= _LEAST_JOINED and known and _is_visible(character)


def _python_escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
