"""Reads a document of any supported format."""

from __future__ import annotations

from edge_rag.core.document import ParsedDocument
from edge_rag.errors import BrokenDocument, DocumentTooLarge, EmptyDocument
from edge_rag.retriever.parsing.formats import DocumentFormat, find_format
from edge_rag.retriever.parsing.html import parse_html
from edge_rag.retriever.parsing.limits import ParsingLimits
from edge_rag.retriever.parsing.markdown import parse_markdown
from edge_rag.retriever.parsing.pdf import parse_pdf
from edge_rag.retriever.parsing.plain import parse_plain


def read_document(
    name: str, media_type: str, content: bytes, limits: ParsingLimits
) -> tuple[DocumentFormat, ParsedDocument]:
    """Finds a document's format and reads it, in this very process: for the parser process and for tests.

    Raises:
        DocumentRejected: It cannot be taken; the subclass and the message say why.
    """
    if not content:
        raise EmptyDocument("it is empty (0 bytes)")
    document_format = find_format(name, media_type, content)
    try:
        parsed = _read(document_format, content, limits)
    except RecursionError as error:
        raise BrokenDocument("its markup is nested too deeply") from error
    if not parsed.text:
        raise EmptyDocument("it holds no text")
    if len(parsed.text) > limits.max_characters:
        raise DocumentTooLarge(
            f"it holds {len(parsed.text):,} characters of text, at most {limits.max_characters:,} are taken; split it"
        )
    return document_format, parsed


def _read(document_format: DocumentFormat, content: bytes, limits: ParsingLimits) -> ParsedDocument:
    match document_format:
        case DocumentFormat.MARKDOWN:
            return parse_markdown(content)
        case DocumentFormat.PLAIN:
            return parse_plain(content)
        case DocumentFormat.HTML:
            return parse_html(content)
        case DocumentFormat.PDF:
            return parse_pdf(content, limits.max_pages)
