"""A small document of each format, made by the writers that people use where there is one for Python."""

import io
import zipfile
from collections.abc import Mapping
from datetime import datetime
from email.message import EmailMessage

from docx import Document
from fpdf import FPDF
from pptx import Presentation
from xlsxwriter import Workbook

from edge_rag.core.documents.document import BlockKind, ParsedDocument
from edge_rag.ingest.parsing.document_format import ParsingLimits
from edge_rag.ingest.parsing.parser import read_document

OPEN_DOCUMENT = (
    'xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" '
    'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0" '
    'xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0" '
    'xmlns:draw="urn:oasis:names:tc:opendocument:xmlns:drawing:1.0" '
    'xmlns:presentation="urn:oasis:names:tc:opendocument:xmlns:presentation:1.0" '
    'xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:meta="urn:oasis:names:tc:opendocument:xmlns:meta:1.0"'
)
WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def read(name: str, content: str | bytes, limits: ParsingLimits | None = None) -> ParsedDocument:
    raw = content.encode() if isinstance(content, str) else content
    return read_document(name, "", raw, limits or ParsingLimits())[1]


def blocks(parsed: ParsedDocument) -> list[tuple[BlockKind, int, str]]:
    return [(block.kind, block.level, parsed.text[block.start : block.end]) for block in parsed.blocks]


def zipped(parts: Mapping[str, str | bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content, zipfile.ZIP_STORED if name == "mimetype" else None)
    return target.getvalue()


def changed_part(content: bytes, name: str, part: str | bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts: dict[str, str | bytes] = {found: archive.read(found) for found in archive.namelist()}
    return zipped({**parts, name: part})


def docx() -> bytes:
    document = Document()
    document.core_properties.title = "Pump manual"
    document.core_properties.author = "A. Fitter"
    document.core_properties.created = datetime(2026, 1, 12, 10)
    document.add_heading("Maintenance", 1)
    document.add_paragraph("Grease the bearings every 2,000 hours.")
    document.add_heading("Seals", 2)
    document.add_paragraph("Close the valve.", style="List Number")
    table = document.add_table(2, 2)
    for row, cells in zip(table.rows, (("Part", "Number"), ("Seal", "P-101")), strict=True):
        for cell, text in zip(row.cells, cells, strict=True):
            cell.text = text
    return _saved(document)


def pptx() -> bytes:
    presentation = Presentation()
    for title, text, note in (("Pumps", "Three of them", "Say it slowly."), ("Valves", "Two", "")):
        slide = presentation.slides.add_slide(presentation.slide_layouts[1])
        slide.shapes.title.text = title
        slide.placeholders[1].text = text
        if note:
            slide.notes_slide.notes_text_frame.text = note
    table = presentation.slides[1].shapes.add_table(1, 2, 0, 0, 100, 100).table
    table.cell(0, 0).text, table.cell(0, 1).text = "V-1", "open"
    return _saved(presentation)


def xlsx() -> bytes:
    target = io.BytesIO()
    with Workbook(target) as book:
        parts = book.add_worksheet("Parts")
        parts.write_row(0, 0, ("Part", "Price", "Due"))
        parts.write_row(1, 0, ("Seal", 12.5))
        parts.write_datetime(1, 2, datetime(2026, 3, 1), book.add_format({"num_format": "dd.mm.yyyy"}))
        parts.write_row(2, 0, ("Ring", 2000))
        parts.write_formula(3, 1, "=SUM(B2:B3)", None, 2012.5)
        book.add_worksheet("Secret").hide()
        book.worksheets()[1].write(0, 0, "not shown")
        book.add_worksheet("Notes").write(0, 0, "Ask before ordering")
    return target.getvalue()


def odt() -> bytes:
    body = (
        '<text:h text:outline-level="2">Seals</text:h><text:p>Check<text:s text:c="3"/>weekly'
        "<text:note><text:note-citation>1</text:note-citation><text:note-body><text:p>On Mondays.</text:p>"
        "</text:note-body></text:note>.</text:p><text:list><text:list-item><text:p>Gloves</text:p></text:list-item>"
        "</text:list><table:table><table:table-row><table:table-cell><text:p>Seal</text:p></table:table-cell>"
        "<table:table-cell><text:p>P-101</text:p></table:table-cell></table:table-row></table:table>"
    )
    content = (
        f"<office:document-content {OPEN_DOCUMENT}><office:body><office:text>"
        "<text:tracked-changes><text:p>taken out</text:p></text:tracked-changes>"
        f"{body}</office:text></office:body></office:document-content>"
    )
    meta = (
        f"<office:document-meta {OPEN_DOCUMENT}><office:meta><dc:title>Seal book</dc:title>"
        "<meta:initial-creator>A. Fitter</meta:initial-creator></office:meta></office:document-meta>"
    )
    return zipped({"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": content, "meta.xml": meta})


def odp() -> bytes:
    slides = "".join(
        f'<draw:page><draw:frame presentation:class="title"><draw:text-box><text:p>{title}</text:p></draw:text-box>'
        f"</draw:frame><draw:frame><draw:text-box><text:p>{text}</text:p></draw:text-box></draw:frame></draw:page>"
        for title, text in (("Pumps", "Three"), ("Valves", "Two"))
    )
    content = (
        f"<office:document-content {OPEN_DOCUMENT}><office:body><office:presentation>{slides}"
        "</office:presentation></office:body></office:document-content>"
    )
    return zipped({"mimetype": "application/vnd.oasis.opendocument.presentation", "content.xml": content})


def epub() -> bytes:
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf" version="2.0"><metadata '
        'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>The Pump</dc:title><dc:creator>A. Fitter</dc:creator>'
        '</metadata><manifest><item id="a" href="text/a.xhtml" media-type="application/xhtml+xml"/>'
        '<item id="b" href="text/b%20b.xhtml" media-type="application/xhtml+xml"/>'
        '<item id="n" href="toc.ncx" media-type="application/x-dtbncx+xml"/></manifest>'
        '<spine toc="n"><itemref idref="b"/><itemref idref="a"/></spine></package>'
    )
    contents = (
        '<!DOCTYPE ncx PUBLIC "-//NISO//DTD ncx 2005-1//EN" "http://www.daisy.org/z3986/2005/ncx-2005-1.dtd">'
        '<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><navMap><navPoint><navLabel><text>First things</text>'
        '</navLabel><content src="text/b%20b.xhtml#x"/></navPoint></navMap></ncx>'
    )
    return zipped(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
            '<rootfile full-path="OEBPS/book.opf"/></rootfiles></container>',
            "OEBPS/book.opf": package,
            "OEBPS/toc.ncx": contents,
            "OEBPS/text/a.xhtml": "<html><head><title>x</title></head><body><h1>Seals</h1><p>Check them."
            "</p></body></html>",
            "OEBPS/text/b b.xhtml": "<?xml version='1.0'?><html><body><p>Wear gl&#246;ves.</p></body></html>",
        }
    )


def mail() -> bytes:
    message = EmailMessage()
    message["From"] = "Jörg <joerg@example.org>"
    message["To"] = "ann@example.org"
    message["Subject"] = "Pump für Ann"
    message["Date"] = "Mon, 12 Jan 2026 10:00:00 +0100"
    message.set_content("Grease it today.\n")
    message.add_alternative("<p>Grease it <b>today</b>.</p>", subtype="html")
    message.add_attachment("# Parts\n\nA seal.\n", subtype="markdown", filename="parts.md")
    message.add_attachment(b"\x89PNG\r\n\x1a\n\0\0", maintype="image", subtype="png", filename="pump.png")
    return message.as_bytes()


def mailbox() -> bytes:
    second = b"Subject: Second\nFrom: b@example.org\n\nBring the ring.\n>From here on, wait.\n"
    opening = b"From joerg@example.org Mon Jan 12 10:00:00 2026\n"
    return opening + mail() + b"\n\n" + opening + second


def pdf() -> bytes:
    document = FPDF()
    document.set_title("Pump sheet")
    document.set_author("A. Fitter")
    document.set_creation_date(datetime(2026, 1, 12, 10))
    document.set_compression(False)
    document.add_page()
    document.set_font("Helvetica", size=12)
    document.multi_cell(0, 6, "Close the valve before the pump is opened. " * 4)
    return bytes(document.output())


def _saved(document: object) -> bytes:
    target = io.BytesIO()
    document.save(target)  # type: ignore[attr-defined]
    return target.getvalue()


RTF = (
    rb"{\rtf1\ansi{\fonttbl\f0 Arial;}\f0 Gr\'f6\'dfe 5 is needed.\par "
    rb"\trowd Part\cell Number\cell\row Wear \b gloves\b0 .\par}"
)

SAMPLES: Mapping[str, bytes] = {
    "a.md": b"# Pump\n\nGrease it.\n\n| Part | Number |\n|---|---|\n| Seal | P-101 |\n",
    "a.txt": b"Grease it.\n\n- gloves\n- mask\n",
    "a.html": b"<title>Pump</title><h1>Pump</h1><p>Grease it.<table><tr><td>a<td>b</table>",
    "a.csv": b"Part,Price\nSeal,12.5\n",
    "a.rtf": RTF,
    "a.pdf": pdf(),
    "a.docx": docx(),
    "a.pptx": pptx(),
    "a.xlsx": xlsx(),
    "a.odt": odt(),
    "a.odp": odp(),
    "a.epub": epub(),
    "a.eml": mail(),
    "a.mbox": mailbox(),
}
"""A document of each format by name."""
