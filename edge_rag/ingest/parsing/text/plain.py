"""Parser for plain text (paragraphs, items, underlined headings) and for CSV and TSV; decoding of any encoding."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from charset_normalizer import from_bytes

from edge_rag.core.documents.document import BlockKind, ParsedDocument
from edge_rag.errors import BrokenDocument, UnsupportedFormat
from edge_rag.ingest.parsing.document_builder import DocumentBuilder, add_records, normalize
from edge_rag.ingest.parsing.document_format import Format

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0e-\x1f\x7f\x80-\x84\x86-\x9f￾￿]")
_MAX_CONTROL_SHARE = 0.002
_MAX_REPLACED_SHARE = 0.05
"""Most of a text that may be U+FFFD: an earlier conversion left it, and the rest can be read."""
_HIGH_BYTES = re.compile(rb"[\x80-\xff]+")
_FEW_HIGH_BYTES = 16
_FEW_HIGH_SHARE = 0.4


def decode_text(content: bytes, declared: str | None = None) -> str:
    """Decodes text of unknown encoding.

    The first of these that applies is used: a byte order mark, valid UTF-8, the encoding that the document declares,
    Windows-1252 if there are too few bytes outside ASCII to guess from, the best guess of charset-normalizer.

    Args:
        content: The bytes.
        declared: Name of the encoding that the document declares, if any.

    Raises:
        UnsupportedFormat: The bytes are not text in any encoding.
    """
    for mark, encoding in _BYTE_ORDER_MARKS:
        if content.startswith(mark):
            return _require(_decode(content, encoding))
    for candidate in ("utf-8", declared):
        text = _decode(content, candidate) if candidate else None
        if text is not None and _is_text(text):
            return text
    return _require(_decode_western(content) or _decode_guessed(content))


def _decode_western(content: bytes) -> str | None:
    """Decodes as Windows-1252 if there are too few bytes outside ASCII to tell one encoding from another."""
    high = sum(map(len, _HIGH_BYTES.findall(content)))
    text = _decode(content, "cp1252") if high < _FEW_HIGH_BYTES and high < _FEW_HIGH_SHARE * len(content) else None
    return text if text is not None and b"\x1b" not in content and _is_text(text) else None


def _decode_guessed(content: bytes) -> str | None:
    best = from_bytes(content).best()
    return None if best is None else str(best)


def _decode(content: bytes, encoding: str) -> str | None:
    try:
        return content.decode(encoding)
    except (ValueError, LookupError):  # ValueError also for a name with a NUL
        return None


def _require(text: str | None) -> str:
    if text is None or not _is_text(text):
        raise UnsupportedFormat("its content is not text, nor of another format that is read")
    return text


def _is_text(text: str) -> bool:
    """Whether control and replacement characters are rare, and none is a NUL."""
    return (
        "\x00" not in text
        and len(_CONTROL_CHARACTERS.findall(text)) <= max(1.0, _MAX_CONTROL_SHARE * len(text))
        and text.count("\ufffd") <= max(1.0, _MAX_REPLACED_SHARE * len(text))
    )


_BULLET = re.compile(r"[-*+•◦▪‣·●○–]\s+(?=\S)")
_BLANK_LINES = re.compile(r"\n[^\S\n]*\n")
_UNDERLINE = re.compile(r"([=-])\1{2,}")
_COLUMNS = re.compile(r"\S(?: {2,}|\t)\S")
_ENTRY = re.compile(r"\s*(?:\d|[^\W\d_][\w ]{0,30}:\s)")
_WIDEST_WRAPPED = 100


def parse_plain(content: bytes) -> ParsedDocument:
    """Reads plain text of any encoding.

    Hard-wrapped lines of a paragraph are joined. If the lines of a paragraph were ended deliberately, are set in
    columns or all start with a number or a label (a log, an address, a table of readings), each line is an item, so
    that separate entries do not become one sentence.

    Raises:
        UnsupportedFormat: The bytes are not text.
    """
    builder = DocumentBuilder()
    add_plain(builder, decode_text(content))
    return builder.build()


def add_plain(builder: DocumentBuilder, source: str) -> None:
    """Appends the blocks of a text, like ``parse_plain``."""
    for paragraph in _BLANK_LINES.split(normalize(source).strip("\n")):
        for kind, text, level in _blocks([line for line in paragraph.split("\n") if line.strip()] or [""]):
            builder.add(kind, text, level)


def _blocks(lines: list[str]) -> list[tuple[BlockKind, str, int]]:
    """Returns the blocks of one paragraph: an underlined heading, list items, joined prose, or one block per line."""
    if len(lines) == 2 and (underline := _UNDERLINE.fullmatch(lines[1].strip())):
        return [(BlockKind.HEADING, lines[0], 1 if underline.group(1) == "=" else 2)]
    if _BULLET.match(lines[0].lstrip()):
        return [(BlockKind.LIST_ITEM, item, 0) for item in _items(lines)]
    if _is_wrapped(lines):
        return [(BlockKind.PARAGRAPH, "\n".join(lines), 0)]
    return [(BlockKind.LIST_ITEM, line, 0) for line in lines]


def _items(lines: list[str]) -> list[str]:
    items: list[str] = []
    for line in lines:
        stripped = line.lstrip()
        bullet = _BULLET.match(stripped)
        if bullet:
            items.append(stripped[bullet.end() :])
        else:
            items[-1] += "\n" + stripped
    return items


def _is_wrapped(lines: list[str]) -> bool:
    """Whether the lines were broken for width.

    A line was ended deliberately if the first word of the next line would have fitted on it and does not start in lower
    case. Text wrapped by a program has no such lines; a third is tolerated for text wrapped by hand.
    """
    if len(lines) == 1:
        return True
    width = max(len(line.rstrip()) for line in lines)
    in_columns = any(_COLUMNS.search(line.strip()) for line in lines)
    if width > _WIDEST_WRAPPED or in_columns or all(_ENTRY.match(line) for line in lines):
        return False
    deliberate = sum(
        len(line.rstrip()) + 1 + len(after.split(maxsplit=1)[0]) <= width and not after.lstrip()[0].islower()
        for line, after in pairwise(lines)
    )
    return 3 * deliberate <= len(lines) - 1


_SEPARATORS = ",;\t|"
_SAMPLED_LINES = 50
_SAMPLED_CHARACTERS = 1 << 16
_LONGEST_CELL = 1 << 20


def parse_delimited(content: bytes) -> ParsedDocument:
    """Reads rows with any common separator and encoding, both detected from the text.

    Raises:
        UnsupportedFormat: The bytes are not text.
        BrokenDocument: A cell is too long, for example because a quotation mark is not closed.
    """
    text = decode_text(content).replace("\r\n", "\n").replace("\r", "\n")
    builder = DocumentBuilder()
    csv.field_size_limit(_LONGEST_CELL)
    add_records(builder, _rows(text, find_separator(text)))
    return builder.build()


def find_separator(text: str) -> str:
    """Returns the separator that splits the first rows most evenly; a comma if none does."""
    lines = text[:_SAMPLED_CHARACTERS].split("\n")
    sample = "\n".join(lines[: min(_SAMPLED_LINES, max(1, len(lines) - 1))])
    return max(_SEPARATORS, key=lambda separator: _evenness(sample, separator))


def _evenness(sample: str, separator: str) -> tuple[float, int]:
    """Returns the share of rows with the most frequent number of cells, 0 if that is one, and that number."""
    try:
        widths = [len(row) for row in csv.reader(io.StringIO(sample, newline=""), delimiter=separator) if row]
    except csv.Error:
        return 0.0, 0
    usual = max(set(widths), key=lambda width: (widths.count(width), width), default=1)
    return (widths.count(usual) / len(widths), usual) if usual > 1 else (0.0, usual)


def _rows(text: str, separator: str) -> Iterator[Sequence[str]]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True)
    try:
        yield from reader
    except csv.Error as error:
        raise BrokenDocument(f"its line {reader.line_num:,} cannot be read as a row of cells: {error}") from error


PLAIN = Format(
    name="PLAIN",
    title="Plain text",
    media_type="text/plain",
    suffixes=(".txt", ".text", ".log"),
    reads="paragraphs, list items, underlined headings; any encoding; also any other text",
    parse=lambda content, _: parse_plain(content),
    is_text=True,
    weak_name=True,
)
CSV = Format(
    name="CSV",
    title="Comma-separated values",
    media_type="text/csv",
    suffixes=(".csv",),
    reads="one record per row; the separator is detected",
    parse=lambda content, _: parse_delimited(content),
    aliases=("application/csv",),
    is_text=True,
    weak_name=True,
)
TSV = Format(
    name="TSV",
    title="Tab-separated values",
    media_type="text/tab-separated-values",
    suffixes=(".tsv", ".tab"),
    reads="one record per row; the separator is detected",
    parse=lambda content, _: parse_delimited(content),
    is_text=True,
    weak_name=True,
)
