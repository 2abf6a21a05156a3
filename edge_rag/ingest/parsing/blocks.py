"""Where the blocks of a marked-up document go: into the document, or into the cell of a table that is open."""

from __future__ import annotations

from dataclasses import dataclass, field

from edge_rag.core.documents.document import BlockKind
from edge_rag.ingest.parsing.document_builder import DocumentBuilder

_DEEPEST_HEADING = 6


@dataclass(slots=True)
class _Piece:
    kind: BlockKind
    text: str
    level: int


@dataclass(slots=True)
class _Row:
    cells: list[list[_Piece]] = field(default_factory=list)


class BlockWriter:
    """Writes blocks and table rows; a table in a cell becomes text of that cell.

    A row of one cell is layout, not a table: its paragraphs and headings are written as what they are.

    Args:
        builder: Takes the blocks.
    """

    def __init__(self, builder: DocumentBuilder) -> None:
        self.page: int | None = None
        self._builder = builder
        self._rows: list[_Row] = []

    def add(self, kind: BlockKind, text: str, level: int = 0) -> None:
        """Appends a block; headings deeper than six count as the sixth."""
        level = min(level, _DEEPEST_HEADING)
        if self._rows and self._rows[-1].cells:
            self._rows[-1].cells[-1].append(_Piece(kind, text, level))
        else:
            self._builder.add(kind, text, level, self.page)

    def open_row(self) -> None:
        """Begins a row."""
        self._rows.append(_Row())

    def open_cell(self) -> None:
        """Begins the next cell of the row that was opened last."""
        if self._rows:
            self._rows[-1].cells.append([])

    def close_row(self) -> None:
        """Writes the row that was opened last."""
        if not self._rows:
            return
        row = self._rows.pop()
        if len(row.cells) == 1:
            for piece in row.cells[0]:
                self.add(piece.kind, piece.text, piece.level)
            return
        texts = (" ".join(piece.text.strip() for piece in cell).strip() for cell in row.cells)
        self.add(BlockKind.TABLE_ROW, " | ".join(text for text in texts if text))
