"""Text recognition of scanned pages by Tesseract, a program that may or may not be installed beside this one.

It is given one page at a time as bare grey levels on its standard input, and answers on its standard output, so there
are no files. It runs at low priority, with one thread, limits of its own, and no right to write or to reach a network.

Scanned pages: asking for their words, and making lines of these.
"""

from __future__ import annotations

import csv
import io
import json
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path

from edge_rag.ingest.parsing.pdf.layout import Line
from edge_rag.ingest.parsing.sandbox import confinement

_INHERITED = ("PATH", "LD_LIBRARY_PATH", "TESSDATA_PREFIX")
_LIST_SECONDS = 20.0
_LIST_AGAIN_SECONDS = 60.0
_PAGE_SECONDS = 120.0
_ORIENTATION = "osd"
_LIMITS = {
    resource.RLIMIT_AS: 2**30,
    resource.RLIMIT_CPU: 60,
    resource.RLIMIT_FSIZE: 0,
    resource.RLIMIT_CORE: 0,
    resource.RLIMIT_NOFILE: 64,
}


@dataclass(frozen=True, slots=True)
class Scan:
    """A page as a picture.

    Attributes:
        width: Pixels in a row.
        height: Rows.
        dots_per_inch: Size of a pixel.
        grey: A byte a pixel, 0 for black, row by row from the top.
    """

    width: int
    height: int
    dots_per_inch: int
    grey: bytes


class TextRecognition:
    """Reads scans in the given languages. May be called from any thread.

    Args:
        languages: Tesseract's names, joined by ``+``, for example ``eng+deu``.
    """

    def __init__(self, languages: str) -> None:
        self._languages = languages
        self._lock = threading.Lock()
        self._installed: frozenset[str] = frozenset()
        self._list_again_at = 0.0
        self._running: subprocess.Popen[bytes] | None = None
        self._ended = False

    def missing(self) -> str:
        """What has to be installed before a page can be read, as a command; empty where nothing has to be.

        A language that is installed meanwhile is found after a minute.
        """
        program = shutil.which("tesseract")
        wanted = self._languages.split("+")
        if program and not self._installed.issuperset(wanted) and time.monotonic() >= self._list_again_at:
            self._installed = self._list_languages(program)
            self._list_again_at = time.monotonic() + _LIST_AGAIN_SECONDS
        lacking = [language for language in wanted if language not in self._installed]
        if program and not lacking:
            return ""
        packages = [] if program else ["tesseract-ocr"]
        packages += [f"tesseract-ocr-{language.replace('_', '-').lower()}" for language in lacking]
        return f"apt-get install {' '.join(packages)}"

    def read(self, scan: Scan) -> bytes:
        """Returns the words of a page with their places as Tesseract's TSV; nothing where it fails or is too slow."""
        program = shutil.which("tesseract")
        if program is None:
            return b""
        segmentation = "1" if _ORIENTATION in self._installed else "3"
        arguments = ["stdin", "stdout", "-l", self._languages, "--psm", segmentation, "--dpi", str(scan.dots_per_inch)]
        picture = b"P5 %d %d 255\n" % (scan.width, scan.height) + scan.grey
        return self._run(program, [*arguments, "-c", "tessedit_create_tsv=1"], picture, _PAGE_SECONDS)

    def close(self) -> None:
        """Ends what is running; from now on nothing is read."""
        with self._lock:
            self._ended = True
            if self._running is not None:
                self._running.kill()

    def _list_languages(self, program: str) -> frozenset[str]:
        return frozenset(
            self._run(program, ["--list-langs"], b"", _LIST_SECONDS).decode("utf-8", "replace").split("\n")
        )

    def _run(self, program: str, arguments: list[str], sent: bytes, seconds: float) -> bytes:
        limits = json.dumps({str(kind): value for kind, value in _LIMITS.items()})
        command = [sys.executable, "-I", "-S", str(Path(confinement.__file__)), limits, program, *arguments]
        environment = {key: os.environ[key] for key in _INHERITED if key in os.environ}
        with self._lock:
            if self._ended:
                return b""
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**environment, "OMP_THREAD_LIMIT": "1"},
                cwd="/",
                start_new_session=True,
            )
            self._running = process
        try:
            answer, _ = process.communicate(sent, timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return b""
        finally:
            with self._lock:
                self._running = None
        return answer if process.returncode == 0 else b""


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
