"""CSV and TSV: a row is a record."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

from edge_rag.core.documents.document import ParsedDocument
from edge_rag.errors import BrokenDocument
from edge_rag.ingest.parsing.document_builder import DocumentBuilder
from edge_rag.ingest.parsing.records import add_records
from edge_rag.ingest.parsing.text.encodings import decode_text

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
