"""Reads a document of any supported format."""

from __future__ import annotations

from edge_rag.core.documents.document import ParsedDocument
from edge_rag.errors import BrokenDocument, DocumentTooLarge, EmptyDocument
from edge_rag.ingest.parsing.formats import DocumentFormat, find_format
from edge_rag.ingest.parsing.limits import ParsingLimits
from edge_rag.ingest.parsing.office.docx import parse_docx
from edge_rag.ingest.parsing.office.epub import parse_epub
from edge_rag.ingest.parsing.office.opendocument import parse_opendocument
from edge_rag.ingest.parsing.office.pptx import parse_pptx
from edge_rag.ingest.parsing.office.rtf import parse_rtf
from edge_rag.ingest.parsing.office.spreadsheet import parse_spreadsheet
from edge_rag.ingest.parsing.pdf.ocr import NO_RECOGNIZER, Recognizer
from edge_rag.ingest.parsing.pdf.pdf import parse_pdf
from edge_rag.ingest.parsing.text.html import parse_html
from edge_rag.ingest.parsing.text.mail import parse_mail, parse_mailbox
from edge_rag.ingest.parsing.text.markdown import parse_markdown
from edge_rag.ingest.parsing.text.plain import parse_delimited, parse_plain

_DEEPEST_ATTACHMENT = 3


def read_document(
    name: str, media_type: str, content: bytes, limits: ParsingLimits, recognizer: Recognizer = NO_RECOGNIZER
) -> tuple[DocumentFormat, ParsedDocument]:
    """Finds a document's format and reads it, in this very process: for the parser process and for tests.

    Args:
        name: Name of the document.
        media_type: What the client believes it is, or empty.
        content: The bytes.
        limits: What it may hold.
        recognizer: Reads scanned pages.

    Raises:
        DocumentRejected: It cannot be taken; the subclass and the message say why.
    """
    return _Reader(limits, recognizer).read(name, media_type, content)


class _Reader:
    def __init__(self, limits: ParsingLimits, recognizer: Recognizer) -> None:
        self._limits = limits
        self._recognizer = recognizer
        self._depth = 0

    def read(self, name: str, media_type: str, content: bytes) -> tuple[DocumentFormat, ParsedDocument]:
        if not content:
            raise EmptyDocument("it is empty (0 bytes)")
        try:
            document_format = find_format(name, media_type, content)
            parsed = self._parse(document_format, content)
        except RecursionError as error:
            raise BrokenDocument("its markup is nested too deeply") from error
        if not parsed.text:
            raise EmptyDocument("it holds no text")
        for amount, most, what in (
            (len(parsed.text), self._limits.max_characters, "characters of text"),
            (len(parsed.blocks), self._limits.max_blocks, "paragraphs and rows"),
        ):
            if amount > most:
                raise DocumentTooLarge(f"it holds {amount:,} {what}, at most {most:,} are taken; split it")
        return document_format, parsed

    def _parse(self, document_format: DocumentFormat, content: bytes) -> ParsedDocument:
        unpacked = self._limits.max_unpacked_bytes
        match document_format:
            case DocumentFormat.MARKDOWN:
                return parse_markdown(content)
            case DocumentFormat.PLAIN:
                return parse_plain(content)
            case DocumentFormat.HTML:
                return parse_html(content)
            case DocumentFormat.PDF:
                return parse_pdf(content, self._limits, self._recognizer)
            case DocumentFormat.DOCX:
                return parse_docx(content, unpacked)
            case DocumentFormat.PPTX:
                return parse_pptx(content, unpacked, self._limits.max_pages)
            case DocumentFormat.XLSX | DocumentFormat.XLSB | DocumentFormat.ODS:
                return parse_spreadsheet(content, unpacked, is_container=True)
            case DocumentFormat.XLS:
                return parse_spreadsheet(content, unpacked, is_container=False)
            case DocumentFormat.ODT | DocumentFormat.ODP:
                return parse_opendocument(content, unpacked, self._limits.max_pages)
            case DocumentFormat.EPUB:
                return parse_epub(content, unpacked)
            case DocumentFormat.MAIL:
                return parse_mail(content, self._attachment)
            case DocumentFormat.MAILBOX:
                return parse_mailbox(content, self._attachment)
            case DocumentFormat.CSV | DocumentFormat.TSV:
                return parse_delimited(content)
            case DocumentFormat.RTF:
                return parse_rtf(content)

    def _attachment(self, name: str, media_type: str, content: bytes) -> ParsedDocument:
        """Reads a document that is part of the one being read."""
        if self._depth == _DEEPEST_ATTACHMENT:
            raise BrokenDocument(f"it is attached more than {_DEEPEST_ATTACHMENT} levels deep")
        self._depth += 1
        try:
            return self.read(name, media_type, content)[1]
        finally:
            self._depth -= 1
