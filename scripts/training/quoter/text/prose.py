"""Paragraphs of running text in the formats that documentation comes in."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import PurePosixPath

_HTML = {".html", ".htm", ".xhtml", ".page"}
_TEXT = {"", ".txt", ".md"}
_NOT_PROSE = re.compile(r"changelog|copyright|news|authors|license|todo", re.IGNORECASE)
_FOREIGN = re.compile(
    r"/help/(?!C/)|/(?!en-)[a-z]{2,3}-[A-Z][A-Za-z]{1,3}/"
    r"|/(?!en/)[a-z]{2}/|\.(?!en\.)[a-z]{2}(?:_[A-Z]{2})?\.html"
)
_BLOCKS = {"p", "li", "dd", "dt", "div", "td", "th", "tr", "br", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote"}
_BLOCKS |= {"section", "item", "title", "desc", "note", "table", "body", "ul", "ol", "dl", "figure"}
_SILENT = {"script", "style", "pre", "code-block", "head", "nav", "screen", "info", "svg", "math", "table-of-contents"}
_POD_MARKUP = re.compile(r"[A-Z]<+\s*([^<>|]*?)\s*>+")
_ENTRY_NOTES = re.compile(r"\[[^\]\[]*\]|\\[^\\]*\\|--\s?[A-Z][\w. ()&]*\.?|/[^/ ]+/|<[^<>]*>")
_SENSE = re.compile(r"^\s*(?:\d+\.|\([a-z]\)|Note:)\s*")


def paragraphs(path: str, data: bytes) -> Iterator[str]:
    """Yields a file's paragraphs, white space not normalized; none for a file that holds no prose.

    Args:
        path: Its path, whose suffixes tell the format.
        data: Its contents; gzip is undone.
    """
    name = PurePosixPath(path)
    if _NOT_PROSE.search(name.name) or _FOREIGN.search(path):
        return
    suffix = name.suffix.lower()
    if suffix in {".gz", ".dz"}:
        data, name = gzip.decompress(data), PurePosixPath(name.stem)
        suffix = name.suffix.lower()
    text = data.decode("utf-8", errors="replace")
    if suffix in _HTML:
        yield from _from_html(text)
    elif suffix in {".pod", ".pm"} or suffix.startswith(".3perl"):
        yield from _from_pod(text)
    elif suffix == ".dict":
        yield from _from_dictionary(text)
    elif suffix in _TEXT and "/doc/" in path:
        yield from re.split(r"\n\s*\n", text)


def _from_html(text: str) -> Iterator[str]:
    reader = _Html()
    reader.feed(text)
    reader.close()
    yield from reader.blocks


class _Html(HTMLParser):
    """Collects the text between tags that begin or end a block."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[str] = []
        self._parts: list[str] = []
        self._silent = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _SILENT:
            self._silent += 1
        if tag in _BLOCKS or tag in _SILENT:
            self._end_block()

    def handle_endtag(self, tag: str) -> None:
        if tag in _SILENT and self._silent:
            self._silent -= 1
        if tag in _BLOCKS or tag in _SILENT:
            self._end_block()

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self._parts.append(data)

    def close(self) -> None:
        super().close()
        self._end_block()

    def _end_block(self) -> None:
        if text := "".join(self._parts).strip():
            self.blocks.append(text)
        self._parts.clear()


def _from_pod(text: str) -> Iterator[str]:
    inside = text.startswith("=")
    for part in re.split(r"\n\s*\n", text):
        if part.startswith("="):
            inside = not part.startswith("=cut")
        elif inside and not part.startswith((" ", "\t")):
            yield _POD_MARKUP.sub(r"\1", part)


def _from_dictionary(text: str) -> Iterator[str]:
    """Entries begin with the headword at the margin; a definition that begins with an article gets it as subject."""
    headword = ""
    for part in re.split(r"\n\s*\n", text):
        lines = part.split("\n")
        while lines and not lines[0].startswith(" "):
            headword = lines.pop(0).split(" \\")[0].strip()
        said = " ".join(_ENTRY_NOTES.sub(" ", " ".join(lines)).replace("{", "").replace("}", "").split())
        said = _SENSE.sub("", said)
        if headword and said.startswith(("A ", "An ", "The ")):
            said = f"{headword[0].upper()}{headword[1:]} is {said[0].lower()}{said[1:]}"
        if said:
            yield said
