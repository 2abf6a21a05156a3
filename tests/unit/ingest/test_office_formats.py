"""What office documents, books and mail are read to."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from edge_rag.core.documents.document import BlockKind
from edge_rag.errors import BrokenDocument, DocumentTooLarge, EncryptedDocument, UnsupportedFormat
from edge_rag.ingest.parsing.document_format import Format, ParsingLimits
from edge_rag.ingest.parsing.formats import FORMATS
from edge_rag.ingest.parsing.office.docx import DOCX
from edge_rag.ingest.parsing.office.epub import EPUB
from edge_rag.ingest.parsing.office.opendocument import ODP, ODT
from edge_rag.ingest.parsing.office.pptx import PPTX
from edge_rag.ingest.parsing.office.rtf import RTF
from edge_rag.ingest.parsing.office.spreadsheet import XLSX
from edge_rag.ingest.parsing.parser import read_document
from edge_rag.ingest.parsing.pdf.pdf import PDF
from edge_rag.ingest.parsing.sandbox.process import ParserProcess
from tests.unit.ingest import sample_files
from tests.unit.ingest.sample_files import OPEN_DOCUMENT, SAMPLES, WORD, blocks, changed_part, read, zipped

HEADING, PARAGRAPH = BlockKind.HEADING, BlockKind.PARAGRAPH
ITEM, ROW = BlockKind.LIST_ITEM, BlockKind.TABLE_ROW


def word(body: str, **parts: str) -> bytes:
    """A Word document of the given body; further parts by the kind of relation that leads to them."""
    relation = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/"
    package = "http://schemas.openxmlformats.org/package/2006/relationships"
    relations = "".join(f'<Relationship Id="{kind}" Type="{relation}{kind}" Target="{kind}.xml"/>' for kind in parts)
    return zipped(
        {
            "[Content_Types].xml": "<Types/>",
            "word/document.xml": f"<w:document {WORD}><w:body>{body}</w:body></w:document>",
            "word/_rels/document.xml.rels": f'<Relationships xmlns="{package}">{relations}</Relationships>',
            **{f"word/{kind}.xml": content for kind, content in parts.items()},
        }
    )


def test_a_word_document_is_read_to_its_structure() -> None:
    parsed = read("a.docx", sample_files.docx())

    assert blocks(parsed) == [
        (HEADING, 1, "Maintenance"),
        (PARAGRAPH, 0, "Grease the bearings every 2,000 hours."),
        (HEADING, 2, "Seals"),
        (ITEM, 0, "Close the valve."),
        (ROW, 0, "Part | Number"),
        (ROW, 0, "Seal | P-101"),
    ]
    assert (parsed.title, parsed.pages) == ("Pump manual", None)
    assert {key: parsed.metadata[key] for key in ("author", "created")} == {
        "author": "A. Fitter",
        "created": datetime(2026, 1, 12, 10, tzinfo=UTC),
    }


def test_tracked_changes_of_a_word_document_count_as_accepted() -> None:
    body = (
        "<w:p><w:r><w:t>Every </w:t></w:r><w:del><w:r><w:delText>1,000</w:delText><w:t>old</w:t></w:r></w:del>"
        "<w:ins><w:r><w:t>2,000</w:t></w:r></w:ins><w:moveFrom><w:r><w:t>gone</w:t></w:r></w:moveFrom>"
        "<w:moveTo><w:r><w:t> hours</w:t></w:r></w:moveTo></w:p>"
    )

    assert read("a.docx", word(body)).text == "Every 2,000 hours"


def test_a_footnote_follows_its_paragraph_and_hidden_text_and_field_codes_are_left_out() -> None:
    body = (
        "<w:p><w:r><w:t>Use oil</w:t><w:tab/><w:t>VG 46</w:t></w:r><w:r><w:footnoteReference w:id='2'/></w:r>"
        "<w:r><w:rPr><w:vanish/></w:rPr><w:t>secret</w:t></w:r>"
        "<w:r><w:instrText>PAGEREF x</w:instrText></w:r><w:r><w:t>.</w:t></w:r></w:p>"
        "<w:p><w:r><w:t>Next</w:t></w:r></w:p>"
    )
    notes = (
        f"<w:footnotes {WORD}><w:footnote w:type='separator' w:id='0'><w:p><w:r><w:t>---</w:t></w:r></w:p></w:footnote>"
        "<w:footnote w:id='2'><w:p><w:r><w:t>Not VG 32.</w:t></w:r></w:p></w:footnote></w:footnotes>"
    )

    assert [text for *_, text in blocks(read("a.docx", word(body, footnotes=notes)))] == [
        "Use oil VG 46.",
        "Not VG 32.",
        "Next",
    ]


def test_a_heading_style_is_known_by_its_outline_level_or_by_what_it_is_based_on_and_loops_end() -> None:
    styles = (
        f"<w:styles {WORD}><w:style w:type='paragraph' w:styleId='U'><w:name w:val='heading 3'/></w:style>"
        "<w:style w:type='paragraph' w:styleId='Mine'><w:name w:val='Mine'/><w:basedOn w:val='U'/></w:style>"
        "<w:style w:type='paragraph' w:styleId='Own'><w:pPr><w:outlineLvl w:val='1'/></w:pPr></w:style>"
        "<w:style w:type='paragraph' w:styleId='Loop'><w:basedOn w:val='Loop'/></w:style></w:styles>"
    )
    body = "".join(
        f"<w:p><w:pPr><w:pStyle w:val='{style}'/></w:pPr><w:r><w:t>{style}</w:t></w:r></w:p>"
        for style in ("Mine", "Own", "Loop")
    )

    assert blocks(read("a.docx", word(body, styles=styles))) == [
        (HEADING, 3, "Mine"),
        (HEADING, 2, "Own"),
        (PARAGRAPH, 0, "Loop"),
    ]


def test_a_table_in_a_table_stays_in_its_cell_and_a_row_of_one_cell_is_no_row() -> None:
    def cell(content: str) -> str:
        return f"<w:tc>{content}</w:tc>"

    def text(content: str) -> str:
        return f"<w:p><w:r><w:t>{content}</w:t></w:r></w:p>"

    inner = f"<w:tbl><w:tr>{cell(text('x'))}{cell(text('y'))}</w:tr></w:tbl>"
    rows = cell(text("a") + inner) + cell(text("b")), cell(text("wide") + text("prose"))
    body = "<w:tbl>" + "".join(f"<w:tr>{row}</w:tr>" for row in rows) + "</w:tbl>"

    assert blocks(read("a.docx", word(body))) == [
        (ROW, 0, "a x | y | b"),
        (PARAGRAPH, 0, "wide"),
        (PARAGRAPH, 0, "prose"),
    ]


def test_a_slide_is_a_page_with_its_title_text_table_and_notes() -> None:
    parsed = read("a.pptx", sample_files.pptx())

    assert parsed.pages == 2
    assert [(block.page, *found) for block, found in zip(parsed.blocks, blocks(parsed), strict=True)] == [
        (1, HEADING, 1, "Pumps"),
        (1, ITEM, 0, "Three of them"),
        (1, PARAGRAPH, 0, "Say it slowly."),
        (2, HEADING, 1, "Valves"),
        (2, ITEM, 0, "Two"),
        (2, ROW, 0, "V-1 | open"),
    ]


def test_a_row_of_a_sheet_names_the_column_of_each_cell() -> None:
    assert blocks(read("a.xlsx", sample_files.xlsx())) == [
        (HEADING, 1, "Parts"),
        (ROW, 0, "Part | Price | Due"),
        (ROW, 0, "Part: Seal | Price: 12.5 | Due: 2026-03-01"),
        (ROW, 0, "Part: Ring | Price: 2000"),
        (ROW, 0, "Price: 2012.5"),
        (HEADING, 1, "Notes"),
        (ROW, 0, "Ask before ordering"),
    ]


def test_an_opendocument_text_is_read_without_what_was_taken_out_of_it() -> None:
    parsed = read("a.odt", sample_files.odt())

    assert blocks(parsed) == [
        (HEADING, 2, "Seals"),
        (PARAGRAPH, 0, "Check weekly."),
        (PARAGRAPH, 0, "On Mondays."),
        (ITEM, 0, "Gloves"),
        (ROW, 0, "Seal | P-101"),
    ]
    assert (parsed.title, parsed.metadata["author"]) == ("Seal book", "A. Fitter")


def test_an_opendocument_presentation_has_a_page_a_slide() -> None:
    parsed = read("a.odp", sample_files.odp())

    assert parsed.pages == 2
    assert [(block.page, block.level) for block in parsed.blocks] == [(1, 1), (1, 0), (2, 1), (2, 0)]


def test_an_opendocument_sheet_is_read_as_records() -> None:
    def row(*cells: str) -> str:
        texts = (
            f'<table:table-cell office:value-type="string"><text:p>{each}</text:p></table:table-cell>' for each in cells
        )
        return f"<table:table-row>{''.join(texts)}</table:table-row>"

    content = (
        f'<office:document-content {OPEN_DOCUMENT}><office:body><office:spreadsheet><table:table table:name="Parts">'
        f"{row('Part', 'Number')}{row('Seal', 'P-101')}</table:table></office:spreadsheet></office:body>"
        "</office:document-content>"
    )
    manifest = '<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"/>'
    sheet = zipped(
        {
            "mimetype": "application/vnd.oasis.opendocument.spreadsheet",
            "content.xml": content,
            "META-INF/manifest.xml": manifest,
        }
    )

    assert [text for *_, text in blocks(read("a.ods", sheet))] == [
        "Parts",
        "Part | Number",
        "Part: Seal | Number: P-101",
    ]


def test_a_book_is_read_in_the_order_of_its_spine_with_its_chapters_as_headings() -> None:
    parsed = read("a.epub", sample_files.epub())

    assert blocks(parsed) == [
        (HEADING, 1, "First things"),
        (PARAGRAPH, 0, "Wear glöves."),
        (HEADING, 1, "Seals"),
        (PARAGRAPH, 0, "Check them."),
    ]
    assert (parsed.title, parsed.metadata["author"]) == ("The Pump", "A. Fitter")


def test_a_book_under_digital_rights_management_is_refused_as_encrypted() -> None:
    encryption = (
        '<encryption xmlns="urn:oasis:names:tc:opendocument:xmlns:container" xmlns:e="http://www.w3.org/2001/04/xmlenc#">'
        '<e:CipherReference URI="OEBPS/text/a.xhtml"/></encryption>'
    )
    with pytest.raises(EncryptedDocument, match="DRM"):
        read("a.epub", changed_part(sample_files.epub(), "META-INF/encryption.xml", encryption))


def test_a_message_is_read_with_its_header_its_text_once_and_its_attachments() -> None:
    parsed = read("a.eml", sample_files.mail())

    assert blocks(parsed) == [
        (HEADING, 1, "Pump für Ann"),
        (ITEM, 0, "From: Jörg <joerg@example.org>"),
        (ITEM, 0, "To: ann@example.org"),
        (ITEM, 0, "Date: Mon, 12 Jan 2026 10:00:00 +0100"),
        (PARAGRAPH, 0, "Grease it today."),
        (HEADING, 2, "Attachment: parts.md"),
        (HEADING, 3, "Parts"),
        (PARAGRAPH, 0, "A seal."),
        (PARAGRAPH, 0, "Attachment, not read: pump.png (it is a PNG image, not a document)"),
    ]
    assert parsed.metadata["created"] == datetime(2026, 1, 12, 9, tzinfo=UTC)


def test_a_mailbox_is_read_message_by_message() -> None:
    parsed = read("a.mbox", sample_files.mailbox())

    assert [text for kind, level, text in blocks(parsed) if (kind, level) == (HEADING, 1)] == ["Pump für Ann", "Second"]
    assert parsed.text.endswith("Bring the ring. From here on, wait.")


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("Part,Price\nSeal,12.5\n", ["Part | Price", "Part: Seal | Price: 12.5"]),
        ('Teil;Preis\n"a;b";12,50\nc;1,5\n', ["Teil | Preis", "Teil: a;b | Preis: 12,50", "Teil: c | Preis: 1,5"]),
        ("Part\tPrice\nSeal\t\n", ["Part | Price", "Part: Seal"]),
        ("1,2\n3,4\n", ["1 | 2", "3 | 4"]),
        (
            'Parts of May\n\nPart,Note\nSeal,"two\nlines"\n',
            ["Parts of May", "Part | Note", "Part: Seal | Note: two lines"],
        ),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp1252"])
def test_rows_of_a_delimited_file_name_the_column_of_each_cell(text: str, rows: list[str], encoding: str) -> None:
    assert read("a.csv", text.encode(encoding)).text.split("\n") == rows


def test_rich_text_is_read_to_paragraphs_and_rows() -> None:
    assert blocks(read("a.rtf", sample_files.RTF)) == [
        (PARAGRAPH, 0, "Größe 5 is needed."),
        (ROW, 0, "Part | Number"),
        (PARAGRAPH, 0, "Wear gloves."),
    ]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("a.docx", DOCX),
        ("a.pptx", PPTX),
        ("a.xlsx", XLSX),
        ("a.odt", ODT),
        ("a.odp", ODP),
        ("a.epub", EPUB),
        ("a.pdf", PDF),
        ("a.rtf", RTF),
    ],
)
@pytest.mark.parametrize("called", ["noname", "a.txt", "a.docx", "a.pdf", "a.csv"])
def test_content_that_shows_what_it_is_is_read_under_any_name(name: str, found: Format, called: str) -> None:
    media_type, parsed = read_document(called, "text/html", SAMPLES[name], ParsingLimits())
    assert media_type == found.media_type
    assert parsed == read(name, SAMPLES[name])


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.docx", b"just text", "its name or media type says DOCX"),
        ("a.pdf", b"hello", "its name or media type says"),
        ("a.epub", b"# Pump", "its name or media type says"),
        ("a.xlsx", b"PK\x03\x04" + bytes(50), "ZIP container cannot be opened"),
    ],
)
def test_content_that_contradicts_its_name_is_refused(name: str, content: bytes, reason: str) -> None:
    with pytest.raises(BrokenDocument, match=reason):
        read(name, content)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (zipped({"a.txt": "x"}), "ZIP archive"),
        (zipped({"mimetype": "application/vnd.oasis.opendocument.graphics"}), "graphics"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600) + "WordDocument".encode("utf-16-le"), "save it as .docx"),
        (b"\xff\xd8\xff\xe0\x00\x10JFIF\x00" + bytes(99), "JPEG"),
        (b"\x1f\x8b\x08\x00" + bytes(99), "gzip"),
        (b"\x00\x00\x00 ftypisom" + bytes(99), "video"),
    ],
)
def test_a_file_of_a_known_kind_that_is_no_document_is_refused_by_what_it_is(content: bytes, reason: str) -> None:
    with pytest.raises(UnsupportedFormat, match=reason):
        read("x", content)


def test_an_encrypted_office_document_is_refused_as_such() -> None:
    content = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600) + "EncryptedPackage".encode("utf-16-le")
    with pytest.raises(EncryptedDocument, match="password"):
        read("a.docx", content)


def test_a_part_that_holds_more_than_is_allowed_is_refused_by_the_amount() -> None:
    with pytest.raises(DocumentTooLarge, match="unpacks to more than 1 MiB"):
        read(
            "a.docx",
            changed_part(SAMPLES["a.docx"], "word/document.xml", b" " * 2**21),
            ParsingLimits(max_unpacked_bytes=2**20),
        )


def test_the_parser_process_reads_every_format_although_it_can_open_no_file() -> None:
    parser = ParserProcess(ParsingLimits())
    try:
        for name, content in SAMPLES.items():
            assert parser.read(name, "", content) == read_document(name, "", content, ParsingLimits())
    finally:
        parser.close()


def test_the_guide_lists_every_format_as_its_parser_declares_it() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "guide" / "formats.md").read_text(encoding="utf-8")
    rows = [
        f"| {each.title} | {' '.join(f'`{suffix}`' for suffix in each.suffixes)} | `{each.media_type}` | {each.reads} |"
        for each in FORMATS
    ]
    table = "\n".join(["| format | suffixes | media type | what is read |", "|---|---|---|---|", *rows])
    assert f"\n{table}\n\n" in guide, f"the table must be:\n{table}"


def test_no_suffix_or_media_type_belongs_to_two_formats() -> None:
    names = [name for each in FORMATS for name in (*each.suffixes, each.media_type, *each.aliases)]
    assert len(names) == len(set(names))


def test_the_daemon_reads_documents_without_importing_a_parser() -> None:
    imported = "import sys, edge_rag.ingest.parsing.sandbox.process; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", imported], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "edge_rag.ingest.parsing.sandbox.messages" in modules
    heavy = {"bs4", "markdown_it", "yaml", "pypdfium2", "python_calamine", "striprtf", "charset_normalizer", "email"}
    assert heavy.isdisjoint(modules)
    assert "edge_rag.ingest.parsing.formats" not in modules
