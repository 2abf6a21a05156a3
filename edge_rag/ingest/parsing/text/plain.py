"""Parser for plain text (paragraphs, items, underlined and numbered headings), CSV and TSV; decodes any encoding."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby, pairwise

from charset_normalizer import from_bytes

from edge_rag.core.documents.document import BlockKind, ParsedDocument
from edge_rag.errors import BrokenDocument, UnsupportedFormat
from edge_rag.ingest.parsing.document_builder import DocumentBuilder, add_records, line_numbers, normalize
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
    """Decodes as Windows-1252 if too few bytes are outside ASCII to detect the encoding."""
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
_UNDERLINE = re.compile(r"([=-])\1{2,}")
_NUMBERED = re.compile(r"(\d{1,2}(?:\.\d{1,2}){0,4})\.?\s+(?=\D)\S.{0,160}(?<![.,;:])")
_HEADING_LINES = 2
_FEWEST_NUMBERED = 3
_MOST_SKIPPED = 3
_COLUMNS = re.compile(r"\S(?: {2,}|\t)\S")
_ENTRY = re.compile(r"\s*(?:\d|[^\W\d_][\w ]{0,30}:\s)")
_WIDEST_WRAPPED = 100


def parse_plain(content: bytes) -> ParsedDocument:
    """Reads plain text of any encoding.

    Hard-wrapped lines of a paragraph are joined. If the lines of a paragraph were ended deliberately, are set in
    columns or all start with a number or a label (a log, an address, a table of readings), each line is an item, so
    that separate entries do not become one sentence.
    """
    builder, source = DocumentBuilder(), decode_text(content)
    add_plain(builder, source, line_numbers(source))
    return builder.build()


def add_plain(builder: DocumentBuilder, source: str, numbers: Sequence[int] = ()) -> None:
    """Appends the blocks of a text, like ``parse_plain``.

    Args:
        numbers: The line of the document that each line of the normalized text is on; empty if unknown.
    """
    lines = normalize(source).split("\n")
    by_blank = groupby(range(len(lines)), lambda place: not lines[place].strip())
    paragraphs = [list(places) for blank, places in by_blank if not blank]
    headings = _numbered_headings([[lines[place] for place in places] for places in paragraphs])
    for number, places in enumerate(paragraphs):
        within_paragraph = [lines[place] for place in places]
        blocks = _blocks(within_paragraph)
        if (depth := headings.get(number)) is not None:
            blocks = iter([(BlockKind.HEADING, depth, list(enumerate(within_paragraph)))])
        for kind, level, within in blocks:
            texts = [text for _, text in within]
            begins = accumulate((len(text) + 1 for text in texts[:-1]), initial=0)
            marks = (
                [(at, numbers[places[line]]) for at, (line, _) in zip(begins, within, strict=True)] if numbers else ()
            )
            builder.add(kind, "\n".join(texts), level, lines=marks)


def _numbered_headings(paragraphs: Sequence[Sequence[str]]) -> dict[int, int]:
    """Returns the levels of the paragraphs that are headings, by their numbers: ``2.1 Valves`` after ``2 Parts``.

    Steps have numbers too, of one level. So the numbers count as those of sections only if they follow each other as
    sections do, some of them inside others.
    """
    found: dict[int, tuple[int, ...]] = {}
    last: tuple[int, ...] = ()
    for place, lines in enumerate(paragraphs):
        match = _NUMBERED.fullmatch(" ".join(line.strip() for line in lines)) if len(lines) <= _HEADING_LINES else None
        if match is None:
            continue
        number = tuple(map(int, match.group(1).split(".")))
        if _follows(last, number):
            found[place] = last = number
    if len(found) < _FEWEST_NUMBERED or max(map(len, found.values())) == 1:
        return {}
    return {place: len(number) for place, number in found.items()}


def _follows(last: tuple[int, ...], number: tuple[int, ...]) -> bool:
    """Whether a section can have a number, after another one; some between them may not have been recognized."""
    if not last:
        return len(number) <= 2 and set(number) <= {0, 1}
    if len(number) > len(last):
        return len(number) == len(last) + 1 and number[:-1] == last and number[-1] <= 1
    same, before, now = number[:-1] == last[: len(number) - 1], last[len(number) - 1], number[-1]
    return same and before < now <= before + _MOST_SKIPPED


_Lines = list[tuple[int, str]]
"""Lines of a paragraph, each with its place in it."""


def _blocks(lines: list[str]) -> Iterator[tuple[BlockKind, int, _Lines]]:
    """Yields the blocks of one paragraph with their levels: an underlined heading, list items, joined prose, or one
    block per line."""
    underline = _UNDERLINE.fullmatch(lines[1].strip()) if len(lines) > 1 else None
    if underline is not None and not _COLUMNS.search(lines[0].strip()):
        yield BlockKind.HEADING, 1 if underline.group(1) == "=" else 2, [(0, lines[0])]
        for kind, level, below in _blocks(lines[2:]) if len(lines) > 2 else ():
            yield kind, level, [(place + 2, line) for place, line in below]
    elif _BULLET.match(lines[0].lstrip()):
        for item in _items(lines):
            yield BlockKind.LIST_ITEM, 0, item
    elif _is_wrapped(lines):
        yield BlockKind.PARAGRAPH, 0, list(enumerate(lines))
    else:
        for numbered in enumerate(lines):
            yield BlockKind.LIST_ITEM, 0, [numbered]


def _items(lines: list[str]) -> list[_Lines]:
    items: list[_Lines] = []
    for place, line in enumerate(lines):
        stripped = line.lstrip()
        bullet = _BULLET.match(stripped)
        if bullet:
            items.append([(place, stripped[bullet.end() :])])
        else:
            items[-1].append((place, stripped))
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
    text = decode_text(content).replace("\r\n", "\n").replace("\r", "\n")
    builder = DocumentBuilder()
    csv.field_size_limit(_LONGEST_CELL)
    rows = _Rows(text, find_separator(text))
    add_records(builder, rows, lambda: rows.line)
    return builder.build()


def find_separator(text: str) -> str:
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


class _Rows:
    """The rows of a text; ``line`` is where the last one that was read begins."""

    def __init__(self, text: str, separator: str) -> None:
        self._reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True)
        self.line = 0

    def __iter__(self) -> Iterator[Sequence[str]]:
        return self

    def __next__(self) -> Sequence[str]:
        self.line = self._reader.line_num + 1
        try:
            return next(self._reader)
        except csv.Error as error:
            line = self._reader.line_num
            raise BrokenDocument(f"its line {line:,} cannot be read as a row of cells: {error}") from error


PLAIN = Format(
    name="PLAIN",
    title="Plain text",
    media_type="text/plain",
    suffixes=(".txt", ".text", ".log"),
    reads="paragraphs, list items, underlined and numbered headings; any encoding; also any other text",
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
