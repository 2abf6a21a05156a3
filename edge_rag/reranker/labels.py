"""Keys by which sentences of definitions and tables, and sections, are looked up; pure.

    a definition: the short line without a full stop above its lines is the term
    a row of a table: its first cell, also with the name of its column
    a section: its heading

Blank lines separate blocks of a stored text; line breaks separate lines of a list and rows of a table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from edge_rag.core.text import is_open

Span = tuple[int, int]
"""Characters of a text: the first one, and one past the last."""

LONGEST_TERM: Final = 120
"""Most characters of the line of a term."""

_SECTION_NUMBER: Final = re.compile(r"^(?:[A-Z]?\d{0,2}(?:\.\d{1,2})+\.?|\d{1,2}\.?)\s+")
_BLOCK_END: Final = "\n\n"
_DIVIDER: Final = " | "


def labels_of(text: str, sentences: Sequence[Span]) -> tuple[Span | None, ...]:
    """Returns the range of the term that each sentence defines, or None; a sentence does not cross lines."""
    lines = list(_labelled_lines(text))
    labels: list[Span | None] = []
    at = 0
    for start, _ in sentences:
        while at + 1 < len(lines) and lines[at + 1][0] <= start:
            at += 1
        labels.append(lines[at][1])
    return tuple(labels)


def keys_of(text: str, sentence: Span, label: Span | None) -> Iterator[str]:
    """Yields the names by which a sentence is looked up: the term that it defines, or the first cell of its row."""
    row = text[slice(*sentence)]
    if _DIVIDER in row:
        first = row.partition(_DIVIDER)[0]
        yield first
        yield first.partition(": ")[2]  # a cell with the name of its column
        table = text.rfind(_BLOCK_END, 0, sentence[0]) + len(_BLOCK_END)
        header = text[max(0, table) if table >= len(_BLOCK_END) else 0 : sentence[0]].partition("\n")[0]
        if _DIVIDER in header:
            yield f"{header.partition(_DIVIDER)[0]} {first}"
    elif label is not None:
        yield text[slice(*label)]


def heading_key(headings: Sequence[str]) -> str:
    """Returns the name by which a section is looked up: its heading without its number; empty without one."""
    return _SECTION_NUMBER.sub("", headings[-1]) if headings else ""


def _labelled_lines(text: str) -> Iterator[tuple[int, Span | None]]:
    """Yields the begin of each line, and its label."""
    begin = 0
    for block in text.split(_BLOCK_END):
        label: Span | None = None
        for line in block.split("\n"):
            span = (begin, begin + len(line))
            if is_open(line):
                yield begin, None
                label = span if len(line) <= LONGEST_TERM and _DIVIDER not in line else None
            else:
                yield begin, label
            begin += len(line) + 1
        begin += len(_BLOCK_END) - 1
