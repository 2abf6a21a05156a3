"""Rows of a table as sentences that can be found and understood one by one; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from edge_rag.core.documents.document import BlockKind
from edge_rag.ingest.parsing.document_builder import DocumentBuilder

_FIGURE = re.compile(r"[-+(]?[€$£¥]?\s?\d[\d\s.,:/%()Ee+-]*(?:[a-zA-Z%€$£¥°]{1,4})?")
_LONGEST_HEADER = 100
_ROWS_LOOKED_AT = 10


def add_records(builder: DocumentBuilder, rows: Iterable[Sequence[str]]) -> None:
    """Appends rows: ``Part: Seal | Number: P-101`` where the table has a head, ``Seal | P-101`` where it has none.

    The head is the first of the first rows that has more than one cell, if it looks like one: every cell of it is a
    short text and none a figure, and no other row looks wider. What stands above it, such as a title, is written as it
    is. Empty cells are left out.

    Args:
        builder: Takes the rows.
        rows: Cells of each row, in order; rows may differ in length.
    """
    remaining = iter(rows)
    first: list[Sequence[str]] = []
    for row in remaining:
        if any(cell.strip() for cell in row):
            first.append(row)
        if len(first) == _ROWS_LOOKED_AT:
            break
    position = _head_position(first)
    head: Sequence[str] = () if position is None else first[position]
    for number, row in enumerate(first):
        _add(builder, row, head if position is not None and number > position else ())
    for row in remaining:
        _add(builder, row, head)


def _add(builder: DocumentBuilder, row: Sequence[str], head: Sequence[str]) -> None:
    cells: list[str] = []
    for column, cell in enumerate(row):
        text = cell.strip()
        label = head[column].strip().rstrip(":") if column < len(head) else ""
        if text:
            cells.append(f"{label}: {text}" if label else text)
    builder.add(BlockKind.TABLE_ROW, " | ".join(cells))


def _head_position(rows: Sequence[Sequence[str]]) -> int | None:
    """Index of the row with the names of the columns, or None."""
    for position, row in enumerate(rows[:-1]):
        filled = [cell.strip() for cell in row if cell.strip()]
        if len(filled) < 2:
            continue
        below = max(sum(bool(cell.strip()) for cell in later) for later in rows[position + 1 :])
        short = all(len(cell) <= _LONGEST_HEADER and not _FIGURE.fullmatch(cell) for cell in filled)
        different = len({cell.lower() for cell in filled}) == len(filled)
        return position if short and different and below <= len(filled) + 1 else None
    return None
