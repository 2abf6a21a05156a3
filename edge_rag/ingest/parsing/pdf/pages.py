"""Scanned pages: asking for their words, and making lines of these."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise

from edge_rag.ingest.parsing.pdf.layout import Line
from edge_rag.ingest.parsing.pdf.ocr import Scan

_WORD_LEVEL = "5"
_LEAST_CONFIDENCE = 25.0
_CELL_GAP_HEIGHTS = 2.5
_PARAGRAPH_GAP = 4.0
_WIDTH = 100.0


@dataclass(frozen=True, slots=True)
class Recognizer:
    """Reads scanned pages.

    Attributes:
        lacks: What has to be done before it can read; empty where nothing has to be.
        read: Returns the words of a page as Tesseract's TSV; nothing where it fails.
    """

    lacks: str
    read: Callable[[Scan], bytes]


NO_RECOGNIZER = Recognizer("text recognition is not at hand", lambda _: b"")
"""For reading documents where no program can be started."""


@dataclass(frozen=True, slots=True)
class _Word:
    paragraph: tuple[str, str]
    line: str
    left: int
    right: int
    height: int
    text: str


def recognized_lines(words: bytes, size: float) -> list[Line]:
    """Makes lines of the words of a page, in Tesseract's reading order and with its paragraphs.

    The places are not those on the page, only such that lines of one paragraph stand close together: type sizes of a
    scan are too uncertain to tell headings by.

    Args:
        words: Tesseract's TSV.
        size: Size of type to say the lines are of.
    """
    lines: list[Line] = []
    bottom = 0.0
    for _, paragraph in groupby(_words(words), key=lambda word: word.paragraph):
        bottom -= _PARAGRAPH_GAP * size
        for _, line in groupby(paragraph, key=lambda word: word.line):
            bottom -= size
            lines.append(Line(tuple(_cells(list(line))), 0.0, _WIDTH, bottom, size, _WIDTH))
    return lines


def _words(table: bytes) -> Iterator[_Word]:
    rows = csv.DictReader(
        io.StringIO(table.decode("utf-8", "replace")), delimiter="\t", quoting=csv.QUOTE_NONE, restval=""
    )
    for row in rows:
        try:
            text = row["text"].strip()
            left, width, height = int(row["left"]), int(row["width"]), int(row["height"])
            is_word = row["level"] == _WORD_LEVEL and float(row["conf"]) >= _LEAST_CONFIDENCE
            place = (row["block_num"], row["par_num"]), row["line_num"]
        except (KeyError, ValueError):
            continue
        if is_word and text:
            yield _Word(*place, left, left + width, height, text)


def _cells(words: list[_Word]) -> Iterator[str]:
    """Pieces of a line that wide gaps set apart."""
    wide = _CELL_GAP_HEIGHTS * max(word.height for word in words)
    cell = [words[0].text]
    for before, word in pairwise(words):
        if word.left - before.right > wide:
            yield " ".join(cell)
            cell = []
        cell.append(word.text)
    yield " ".join(cell)
