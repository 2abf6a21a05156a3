"""RTF parser: paragraphs and table rows, read with striprtf."""

from __future__ import annotations

from striprtf.striprtf import rtf_to_text

from edge_rag.core.documents.document import BlockKind, ParsedDocument
from edge_rag.errors import BrokenDocument
from edge_rag.ingest.parsing.document_builder import DocumentBuilder
from edge_rag.ingest.parsing.document_format import Format

_CELL_END = "|"


def parse_rtf(content: bytes) -> ParsedDocument:
    """Reads the text; styles are not known, so there are no headings.

    Raises:
        BrokenDocument: Its control words are invalid.
    """
    try:
        text = rtf_to_text(content.decode("latin-1"), errors="replace")
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise BrokenDocument("it is damaged: its control words are invalid") from error
    builder = DocumentBuilder()
    for line in text.split("\n"):
        if line.endswith(_CELL_END) and line.count(_CELL_END) > 1:
            cells = (cell.strip() for cell in line.split(_CELL_END))
            builder.add(BlockKind.TABLE_ROW, " | ".join(cell for cell in cells if cell))
        else:
            builder.add(BlockKind.PARAGRAPH, line.removesuffix(_CELL_END))
    return builder.build()


def _is_rtf(content: bytes) -> bool:
    return content.lstrip()[:5] == b"{\\rtf"


RTF = Format(
    name="RTF",
    title="Rich Text",
    media_type="application/rtf",
    suffixes=(".rtf",),
    reads="paragraphs and table rows; no headings or lists",
    parse=lambda content, _: parse_rtf(content),
    aliases=("text/rtf",),
    sniff=_is_rtf,
)
