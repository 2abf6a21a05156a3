"""Text of a terminal, wrapped at words to its width; text for files and programs keeps its lines."""

from __future__ import annotations

import os
import re
from typing import Final, TextIO
from unicodedata import combining, east_asian_width

_LEAST: Final = 20
"""Columns below which nothing is wrapped: the terminal does it as well."""

_PIECES: Final = re.compile(r"\n|[^\S\n]+|\S+")


def columns_of(stream: TextIO) -> int | None:
    """Returns the width of a terminal; None of a file or pipe, and where it is not known or very small."""
    try:
        width = os.get_terminal_size(stream.fileno()).columns if stream.isatty() else 0
    except (OSError, ValueError):
        return None
    return width if width >= _LEAST else None


def width_of(text: str) -> int:
    return sum(0 if combining(each) else 2 if east_asian_width(each) in "WF" else 1 for each in text)


class WordWrap:
    """Breaks streamed text at words. The terminal breaks words longer than a line, as a text without spaces.

    Args:
        columns: Width of a line; None breaks nothing.
    """

    def __init__(self, columns: int | None, indent: str = "") -> None:
        self._columns = columns
        self._indent = indent
        self._column = 0
        self._space = ""
        self._word = ""

    def feed(self, text: str) -> str:
        """Returns the next text, without a word at its end, which may go on."""
        if self._columns is None:
            return text
        done = []
        for piece in _PIECES.findall(text):
            if not piece.isspace():
                self._word += piece
                continue
            done.append(self._placed())
            if piece == "\n":
                done.append("\n")
                self._column, self._space = 0, ""
            else:
                self._space += piece
        return "".join(done)

    def end(self) -> str:
        return self._placed()

    def _placed(self) -> str:
        if not self._word:
            return ""
        before, word, wide = self._space, self._word, width_of(self._word)
        if self._column and before and self._column + width_of(before) + wide > (self._columns or 0):
            before = f"\n{self._indent}"
            self._column = 0
        self._column += width_of(before.removeprefix("\n")) + wide
        self._space = self._word = ""
        return before + word


def wrapped(text: str, columns: int | None, indent: str = "") -> str:
    wrap = WordWrap(columns, indent)
    return wrap.feed(text) + wrap.end()
