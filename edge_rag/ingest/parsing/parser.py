"""Parses a document of any format in the calling process: used by the sandboxed worker and by tests."""

from __future__ import annotations

from edge_rag.core.documents.document import ParsedDocument
from edge_rag.errors import BrokenDocument, DocumentTooLarge, EmptyDocument
from edge_rag.ingest.parsing.document_format import ParseContext, ParsingLimits, UnpackedBytes
from edge_rag.ingest.parsing.formats import find_format
from edge_rag.ingest.parsing.pdf.ocr import NO_RECOGNIZER, Recognizer

_DEEPEST_ATTACHMENT = 3
_MOST_ATTACHMENTS = 1_000


def read_document(
    name: str, media_type: str, content: bytes, limits: ParsingLimits, recognizer: Recognizer = NO_RECOGNIZER
) -> tuple[str, ParsedDocument]:
    """Finds the format of a document and parses it.

    Args:
        media_type: What the client states, or empty.
        content: The bytes.
    """
    return _DocumentReader(limits, recognizer).read(name, media_type, content)


class _DocumentReader:
    def __init__(self, limits: ParsingLimits, recognizer: Recognizer) -> None:
        self._limits = limits
        self._context = ParseContext(limits, UnpackedBytes(limits.max_unpacked_bytes), recognizer, self._attachment)
        self._depth = 0
        self._attachments = 0

    def read(self, name: str, media_type: str, content: bytes) -> tuple[str, ParsedDocument]:
        if not content:
            raise EmptyDocument("it is empty (0 bytes)")
        try:
            document_format = find_format(name, media_type, content)
            parsed = document_format.parse(content, self._context)
        except RecursionError as error:
            raise BrokenDocument("its markup is nested too deeply") from error
        if not parsed.text:
            raise EmptyDocument("it holds no text")
        for amount, limit, unit in (
            (len(parsed.text), self._limits.max_characters, "characters of text"),
            (len(parsed.blocks), self._limits.max_blocks, "paragraphs and rows"),
        ):
            if amount > limit:
                raise DocumentTooLarge(f"it holds {amount:,} {unit}, at most {limit:,} are allowed; split it")
        return document_format.media_type, parsed

    def _attachment(self, name: str, media_type: str, content: bytes) -> ParsedDocument:
        if self._depth == _DEEPEST_ATTACHMENT:
            raise BrokenDocument(f"it is attached more than {_DEEPEST_ATTACHMENT} levels deep")
        self._attachments += 1
        if self._attachments > _MOST_ATTACHMENTS:
            raise BrokenDocument(f"the document has more than {_MOST_ATTACHMENTS:,} attachments")
        self._depth += 1
        try:
            return self.read(name, media_type, content)[1]
        finally:
            self._depth -= 1
