"""Plain text: paragraphs set apart by blank lines, items by bullets, headings by underlining.

Bytes to text, whatever the encoding; bytes that are no text are refused.

CSV and TSV: a row is a record.
"""

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
_NOT_TEXT = re.compile("[\x00-\x08\x0e-\x1f\x7f\x80-\x84\x86-\x9f�￾￿]")
_MOST_NOT_TEXT = 0.002
_HIGH_BYTES = re.compile(rb"[\x80-\xff]+")
_FEW_HIGH_BYTES = 16
_FEW_HIGH_SHARE = 0.4


def decode_text(content: bytes, declared: str | None = None) -> str:
    """Decodes text of unknown encoding.

    A byte order mark decides, then UTF-8 if the bytes are valid as that, then the encoding the document declares, then
    Windows-1252 if there are too few bytes outside ASCII to guess from, then charset-normalizer's best guess.

    Args:
        content: The bytes.
        declared: Name of the encoding that the document itself declares, if it does.

    Raises:
        UnsupportedFormat: No encoding makes text of the bytes.
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
    """Text in Western Europe's encoding if the bytes outside ASCII are too few to tell one encoding from another."""
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
        raise UnsupportedFormat("its content is not text, and it is of no other format that is read")
    return text


def _is_text(text: str) -> bool:
    """Whether control characters are no more frequent than a stray one now and then, and none is a NUL."""
    return "\x00" not in text and len(_NOT_TEXT.findall(text)) <= max(1.0, _MOST_NOT_TEXT * len(text))


_BULLET = re.compile(r"[-*+•◦▪‣·●○–]\s+(?=\S)")
_BLANK_LINES = re.compile(r"\n[^\S\n]*\n")
_UNDERLINE = re.compile(r"([=-])\1{2,}")
_COLUMNS = re.compile(r"\S(?: {2,}|\t)\S")
_ENTRY = re.compile(r"\s*(?:\d|[^\W\d_][\w ]{0,30}:\s)")
_WIDEST_WRAPPED = 100


def parse_plain(content: bytes) -> ParsedDocument:
    """Reads plain text of any encoding.

    Hard-wrapped lines of a paragraph are joined. A paragraph whose lines were ended on purpose, are set in columns or
    all start with a number or a label (a log, an address, a table of readings) keeps each line as an item, so that no
    two entries become one sentence.

    Raises:
        UnsupportedFormat: The bytes are not text.
    """
    builder = DocumentBuilder()
    add_plain(builder, decode_text(content))
    return builder.build()


def add_plain(builder: DocumentBuilder, source: str) -> None:
    """Appends the blocks of a text, as ``parse_plain`` finds them."""
    for paragraph in _BLANK_LINES.split(normalize(source).strip("\n")):
        for kind, text, level in _blocks([line for line in paragraph.split("\n") if line.strip()] or [""]):
            builder.add(kind, text, level)


def _blocks(lines: list[str]) -> list[tuple[BlockKind, str, int]]:
    """Blocks of one paragraph: an underlined heading, list items, joined prose, or one line each."""
    if len(lines) == 2 and (underline := _UNDERLINE.fullmatch(lines[1].strip())):
        return [(BlockKind.HEADING, lines[0], 1 if underline.group(1) == "=" else 2)]
    if _BULLET.match(lines[0].lstrip()):
        return [(BlockKind.LIST_ITEM, item, 0) for item in _items(lines)]
    if _is_wrapped(lines):
        return [(BlockKind.PARAGRAPH, " ".join(lines), 0)]
    return [(BlockKind.LIST_ITEM, line, 0) for line in lines]


def _items(lines: list[str]) -> list[str]:
    items: list[str] = []
    for line in lines:
        stripped = line.lstrip()
        bullet = _BULLET.match(stripped)
        if bullet:
            items.append(stripped[bullet.end() :])
        else:
            items[-1] += " " + stripped
    return items


def _is_wrapped(lines: list[str]) -> bool:
    """Whether the lines were broken for width.

    A line was ended on purpose if the next one's first word would still have fitted on it and does not go on in lower
    case. Text wrapped by a program has no such lines; a third of them is allowed for text wrapped by hand.
    """
    if len(lines) == 1:
        return True
    width = max(len(line.rstrip()) for line in lines)
    in_columns = any(_COLUMNS.search(line.strip()) for line in lines)
    if width > _WIDEST_WRAPPED or in_columns or all(_ENTRY.match(line) for line in lines):
        return False
    on_purpose = sum(
        len(line.rstrip()) + 1 + len(after.split(maxsplit=1)[0]) <= width and not after.lstrip()[0].islower()
        for line, after in pairwise(lines)
    )
    return 3 * on_purpose <= len(lines) - 1


_SEPARATORS = ",;\t|"
_LINES_LOOKED_AT = 50
_CHARACTERS_LOOKED_AT = 1 << 16
_LONGEST_CELL = 1 << 20


def parse_delimited(content: bytes) -> ParsedDocument:
    """Reads rows of any common separator and encoding, found from the text itself.

    Raises:
        UnsupportedFormat: The bytes are not text.
        BrokenDocument: A cell is longer than any cell is, as where a quotation mark is never closed.
    """
    text = decode_text(content).replace("\r\n", "\n").replace("\r", "\n")
    builder = DocumentBuilder()
    csv.field_size_limit(_LONGEST_CELL)
    add_records(builder, _rows(text, find_separator(text)))
    return builder.build()


def find_separator(text: str) -> str:
    """The separator that cuts the first rows into the most even columns; a comma where none does."""
    lines = text[:_CHARACTERS_LOOKED_AT].split("\n")
    sample = "\n".join(lines[: min(_LINES_LOOKED_AT, max(1, len(lines) - 1))])
    return max(_SEPARATORS, key=lambda separator: _evenness(sample, separator))


def _evenness(sample: str, separator: str) -> tuple[float, int]:
    """Share of the rows that have the most frequent number of cells, 0 where that is one; and that number."""
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
