"""OCR of scanned pages with Tesseract, if that program is installed.

The daemon runs Tesseract with one page at a time as grey levels on standard input and reads the words from standard
output, so no files are involved. Tesseract runs at low priority, with one thread, with resource limits, and with rights
to read only its own files and those of the system: a picture that takes it over finds neither the data directory nor
the network. The parser process requests the words of a page and makes lines of them.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from edge_rag.core.limits.limited_process import start_child
from edge_rag.ingest.parsing.document_builder import space_between
from edge_rag.ingest.parsing.pages import RelativeBox, relative_box
from edge_rag.ingest.parsing.pdf.layout import Line
from edge_rag.ingest.parsing.sandbox import confinement

_INHERITED = ("TESSDATA_PREFIX",)
_SYSTEM_FOLDERS = ("/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d")
"""What every program needs: libraries and the search paths of the loader."""
_LIST_SECONDS = 20.0
_LANGUAGE_CACHE_SECONDS = 60.0
_PAGE_SECONDS = 120.0
_ORIENTATION = "osd"
_NOT_LANGUAGES = frozenset((_ORIENTATION, "equ"))
_LANGUAGE = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_USUAL = "eng"
"""The language that Tesseract's package brings along."""

AUTO = "auto"
"""Stands for the installed languages."""

_MOST_LANGUAGES = 6
"""Installed languages, at most, that pages are read in without being chosen. Each takes its time (a page in one of four
languages takes 1.2 to 2.9 times that of its own alone, processor time), and more are rather all that there are than
those of the documents.
"""
_LIMITS = {
    resource.RLIMIT_AS: 2**30,
    resource.RLIMIT_CPU: 60,
    resource.RLIMIT_FSIZE: 0,
    resource.RLIMIT_CORE: 0,
    resource.RLIMIT_NOFILE: 64,
}


@dataclass(frozen=True, slots=True)
class Scan:
    """A rendered page.

    Attributes:
        grey: One byte per pixel, 0 for black, row by row from the top.
    """

    width: int
    height: int
    dots_per_inch: int
    grey: bytes


class TesseractOcr:
    """Recognizes scanned pages with Tesseract. May be called from any thread."""

    def __init__(self, languages: str) -> None:
        self._languages = languages
        self._lock = threading.Lock()
        self._installed: frozenset[str] = frozenset()
        self._list_expires_at = 0.0
        self._running: subprocess.Popen[bytes] | None = None
        self._ended = False

    def problem(self) -> str:
        """Returns why scanned pages cannot be read and what to do; empty if they can.

        A language installed meanwhile is detected within a minute.
        """
        program = shutil.which("tesseract")
        wanted = [] if self._languages == AUTO else self._languages.split("+")
        known = bool(wanted) and self._installed.issuperset(wanted)
        if program and not known and time.monotonic() >= self._list_expires_at:
            self._installed = self._list_languages(program)
            self._list_expires_at = time.monotonic() + _LANGUAGE_CACHE_SECONDS
        missing = [language for language in wanted if language not in self._installed]
        if program and not missing and self.languages():
            return ""
        packages = [] if program else ["tesseract-ocr"]
        if program and not missing:
            missing = [_USUAL]
        packages += [f"tesseract-ocr-{language.replace('_', '-').lower()}" for language in missing]
        command = f"apt-get install {' '.join(packages)}"
        if not program or not wanted:
            return f"install OCR to read them: {command}"
        return (
            f"ingest.scan_languages names {', '.join(missing)}, which Tesseract does not have "
            f"(installed: {', '.join(self.installed()) or 'none'}): change it, or {command}"
        )

    def installed(self) -> tuple[str, ...]:
        return tuple(sorted(self._installed - _NOT_LANGUAGES))

    def languages(self) -> tuple[str, ...]:
        """Returns the languages that pages are read in: those of the setting, or the installed ones.

        With ``AUTO`` English is last, as it comes along with Tesseract while others were chosen: of equally likely
        readings of a word, the one in an earlier language counts. Of more than ``_MOST_LANGUAGES`` it is taken alone.
        """
        if self._languages != AUTO:
            return tuple(self._languages.split("+"))
        installed = sorted(self.installed(), key=lambda language: language == _USUAL)
        if len(installed) > _MOST_LANGUAGES and _USUAL in installed:
            return (_USUAL,)
        return tuple(installed[:_MOST_LANGUAGES])

    def read(self, scan: Scan) -> bytes:
        """Returns the words of a page and their positions as Tesseract's TSV; empty if it fails or times out."""
        program = shutil.which("tesseract")
        if program is None:
            return b""
        segmentation = "1" if _ORIENTATION in self._installed else "3"
        names = "+".join(self.languages())
        arguments = ["stdin", "stdout", "-l", names, "--psm", segmentation, "--dpi", str(scan.dots_per_inch)]
        picture = b"P5 %d %d 255\n" % (scan.width, scan.height) + scan.grey
        return self._run(program, [*arguments, "-c", "tessedit_create_tsv=1"], picture, _PAGE_SECONDS)

    def close(self) -> None:
        with self._lock:
            self._ended = True
            if self._running is not None:
                self._running.kill()

    def _list_languages(self, program: str) -> frozenset[str]:
        listed = self._run(program, ["--list-langs"], b"", _LIST_SECONDS).decode("utf-8", "replace").split("\n")
        return frozenset(line for line in listed if _LANGUAGE.fullmatch(line))

    def _run(self, program: str, arguments: list[str], sent: bytes, seconds: float) -> bytes:
        settings = json.dumps({"limits": _LIMITS, "readable": _readable(program)})
        command = [sys.executable, "-P", "-s", "-S", "-m", confinement.__name__, settings, program, *arguments]
        environment = {key: os.environ[key] for key in _INHERITED if key in os.environ}
        with self._lock:
            if self._ended:
                return b""
            process = start_child(command, {**environment, "LC_ALL": "C.UTF-8", "OMP_THREAD_LIMIT": "1"})
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


def _readable(program: str) -> list[str]:
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    own = (program, os.path.realpath(program), os.environ.get("TESSDATA_PREFIX", ""))
    return [path for path in (*_SYSTEM_FOLDERS, *own, *libraries) if path]


_WORD_LEVEL = "5"
_LEAST_CONFIDENCE = 25.0
_CELL_GAP_HEIGHTS = 2.5
_PARAGRAPH_GAP = 4.0
_WIDTH = 100.0


@dataclass(frozen=True, slots=True)
class Recognizer:
    """Gives parsers the words of scanned pages.

    Attributes:
        problem: Why OCR does not work and what to do; empty if it works.
        read: Returns the words of a page as Tesseract's TSV; empty if OCR fails.
    """

    problem: str
    read: Callable[[Scan], bytes]


NO_RECOGNIZER = Recognizer("OCR is not available", lambda _: b"")
"""Used where no program can be started."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a scanned page; lengths in pixels.

    Attributes:
        first: Position of its first character among those of all words.
        box: Where it is on the page; None if it has no extent.
    """

    paragraph: tuple[str, str]
    line: str
    left: int
    right: int
    height: int
    text: str
    first: int
    box: RelativeBox | None


def recognized_lines(words: Sequence[Word], size: float) -> list[Line]:
    """Makes lines of the words of a page, in Tesseract's reading order and paragraphs.

    Positions are not those on the page; they only keep the lines of a paragraph close together, because type sizes of a
    scan are too uncertain to detect headings.
    """
    lines: list[Line] = []
    bottom = 0.0
    for _, paragraph in groupby(words, key=lambda word: word.paragraph):
        bottom -= _PARAGRAPH_GAP * size
        for _, group in groupby(paragraph, key=lambda word: word.line):
            bottom -= size
            line = list(group)
            characters = tuple((word.first, word.first + len(word.text)) for word in line)
            lines.append(Line(tuple(_cells(line)), 0.0, _WIDTH, bottom, size, _WIDTH, characters))
    return lines


def recognized_words(table: bytes, scan: Scan) -> list[Word]:
    """Returns the words of a page, in Tesseract's order."""
    words: list[Word] = []
    first = 0
    rows = csv.DictReader(
        io.StringIO(table.decode("utf-8", "replace")), delimiter="\t", quoting=csv.QUOTE_NONE, restval=""
    )
    for row in rows:
        try:
            text = row["text"].strip()
            left, width, height = int(row["left"]), int(row["width"]), int(row["height"])
            top = int(row["top"])
            is_word = row["level"] == _WORD_LEVEL and float(row["conf"]) >= _LEAST_CONFIDENCE
            place = (row["block_num"], row["par_num"]), row["line_num"]
        except (KeyError, ValueError):
            continue
        if is_word and text:
            box = relative_box(
                left / scan.width, top / scan.height, (left + width) / scan.width, (top + height) / scan.height
            )
            words.append(Word(*place, left, left + width, height, text, first, box))
            first += len(text)
    return words


def _cells(words: list[Word]) -> Iterator[str]:
    wide = _CELL_GAP_HEIGHTS * max(word.height for word in words)
    cell = words[0].text
    for before, word in pairwise(words):
        if max(word.left - before.right, before.left - word.right) > wide:
            yield cell
            cell = word.text
        else:
            cell += space_between(cell, word.text) + word.text
    yield cell
