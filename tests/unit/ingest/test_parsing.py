"""What each format is read to."""

import io
import re
from collections.abc import Callable

import pytest
from fpdf import FPDF
from pypdf import PdfReader, PdfWriter

from edge_rag.core.documents.document import BlockKind
from edge_rag.errors import BrokenDocument, DocumentTooLarge, EmptyDocument, EncryptedDocument, UnsupportedFormat
from edge_rag.ingest.parsing.document_format import Format, ParsingLimits
from edge_rag.ingest.parsing.formats import find_format
from edge_rag.ingest.parsing.pdf.pdf import PDF
from edge_rag.ingest.parsing.text.html import HTML
from edge_rag.ingest.parsing.text.mail import MAIL
from edge_rag.ingest.parsing.text.markdown import MARKDOWN
from edge_rag.ingest.parsing.text.plain import CSV, PLAIN
from tests.unit.ingest.sample_files import blocks, read

HEADING, PARAGRAPH = BlockKind.HEADING, BlockKind.PARAGRAPH
ITEM, ROW, CODE = BlockKind.LIST_ITEM, BlockKind.TABLE_ROW, BlockKind.CODE


def make_pdf(write: Callable[[FPDF], None]) -> bytes:
    pdf = FPDF()
    pdf.add_page()
    pdf.set_font("Helvetica", size=11)
    write(pdf)
    return bytes(pdf.output())


def test_markdown_is_read_to_its_structure_without_markup() -> None:
    parsed = read(
        "manual.md",
        "# The *pump*\n\nGrease [the bearings](http://a/b)\nevery **2,000** hours.\n\n- `one`\n  - two\n\n"
        "| Part | Number |\n|---|---|\n| Seal | P-101 |\n\n```\na = 1\n  b\n```\n\n<div>In <b>HTML</b></div>\n",
    )

    assert parsed.title == "The pump"
    assert blocks(parsed) == [
        (HEADING, 1, "The pump"),
        (PARAGRAPH, 0, "Grease the bearings every 2,000 hours."),
        (ITEM, 0, "one"),
        (ITEM, 0, "two"),
        (ROW, 0, "Part | Number"),
        (ROW, 0, "Seal | P-101"),
        (CODE, 0, "a = 1\n  b"),
        (PARAGRAPH, 0, "In HTML"),
    ]


def test_html_is_read_as_it_is_seen() -> None:
    parsed = read(
        "page.html",
        "<html><head><title>Parts &amp; tools</title><style>p{}</style></head><body><nav><a>Home</a></nav>"
        "<h2>Seal <i>kit</i></h2>Loose te<b>xt</b><p>One<br>two<ul><li>first<li>second <p>inner</p></ul>"
        "<table><tr><th>Part</th><th>No<p>.</p></th></tr><tr><td>Seal<td>P-101</tr></table>"
        "<pre>x\n  y</pre><script>alert(1)</script><p hidden>secret</p><!-- note --></body></html>",
    )

    assert parsed.title == "Parts & tools"
    assert blocks(parsed) == [
        (HEADING, 2, "Seal kit"),
        (PARAGRAPH, 0, "Loose text"),
        (PARAGRAPH, 0, "One two"),
        (ITEM, 0, "first"),
        (ITEM, 0, "second"),
        (ITEM, 0, "inner"),
        (ROW, 0, "Part | No ."),
        (ROW, 0, "Seal | P-101"),
        (CODE, 0, "x\n  y"),
    ]


def test_the_encoding_that_a_page_declares_is_used() -> None:
    assert read("a.html", "<meta charset='iso-8859-7'><p>αντλία</p>".encode("iso-8859-7")).text == "αντλία"


def test_no_text_of_a_deeply_nested_list_is_lost() -> None:
    source = "\n".join(f"{'  ' * depth}- item {depth}" for depth in range(30))
    assert read("a.md", source).text.splitlines() == [f"item {depth}" for depth in range(30)]


def test_html_nested_beyond_reason_is_still_read() -> None:
    assert read("deep.html", "<div>" * 5000 + "bottom").text == "bottom"


def test_numbered_and_underlined_lines_of_plain_text_are_headings() -> None:
    text = (
        "Pumps\n=====\nThey move water.\n\n1. Parts\n\nOf steel.\n\n1.1. Which seals are there,\nand where?\n\nTwo.\n\n"
        "1.5 litres of oil.\n\n3 Steps\n\n1. Open it.\n\n2. Close it."
    )
    assert [(level, line) for _, level, line in blocks(read("pumps.txt", text))] == [
        (1, "Pumps"),
        (0, "They move water."),
        (1, "1. Parts"),
        (0, "Of steel."),
        (2, "1.1. Which seals are there, and where?"),
        (0, "Two."),
        (0, "1.5 litres of oil."),
        (1, "3 Steps"),
        (0, "1. Open it."),
        (0, "2. Close it."),
    ]


def test_numbered_steps_of_plain_text_are_no_headings() -> None:
    text = "1. Open the valve\n\nIt is red.\n\n2. Close the valve\n\nIt is hot.\n\n3. Log it\n\nDone."
    assert not any(level for _, level, _ in blocks(read("steps.txt", text)))


def test_wrapped_lines_of_plain_text_are_joined_and_lines_of_a_log_are_not() -> None:
    parsed = read(
        "notes.txt",
        "OPERATION\r\n=========\r\n\r\n"
        "The pump is started from the panel beside the door, and\r\nit must never run dry. Watch the gauge while it\r\n"
        "starts.\r\n\r\n"
        "2026-01-02 greased bearings\r\n2026-01-09 changed the oil filter\r\n2026-02-01 ok\r\n\r\n"
        "- first\r\n  goes on\r\n- second\r\n",
    )

    assert blocks(parsed) == [
        (HEADING, 1, "OPERATION"),
        (
            PARAGRAPH,
            0,
            "The pump is started from the panel beside the door, and it must never run dry. Watch the gauge while it"
            " starts.",
        ),
        (ITEM, 0, "2026-01-02 greased bearings"),
        (ITEM, 0, "2026-01-09 changed the oil filter"),
        (ITEM, 0, "2026-02-01 ok"),
        (ITEM, 0, "first goes on"),
        (ITEM, 0, "second"),
    ]


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("utf-8", "Größe 5 µm"),
        ("utf-8-sig", "Größe 5 µm"),
        ("utf-16", "Größe 5 µm"),
        ("utf-16-le", "The bearings are greased, Größe 5."),
        ("cp1252", "Größe – „fünf“"),
        ("latin-1", "Öl prüfen"),
        ("cp1251", "Подшипники насоса необходимо смазывать каждые 2000 часов."),
        ("shift_jis", "ポンプの軸受は二千時間ごとに給油する必要があります。"),
        ("gb18030", "水泵轴承必须每两千小时润滑一次。请检查密封圈。"),
        ("koi8-r", "Подшипники насоса необходимо смазывать каждые 2000 часов работы, не реже."),
        ("utf-32", "Größe 5 µm"),
        ("utf-16-be", "The bearings are greased, Größe 5."),
    ],
)
def test_plain_text_is_read_in_any_encoding(encoding: str, text: str) -> None:
    assert read("a.txt", text.encode(encoding)).text == text


def test_characters_that_an_earlier_conversion_lost_do_not_keep_a_text_out() -> None:
    text = "Kublai's government faced financial difficulties (\ufffd\ufffd) after the wars. " * 3
    assert read("a.txt", text).text == text.strip()
    with pytest.raises(UnsupportedFormat):
        read("a.txt", "\ufffd" * 100 + " some")


@pytest.mark.parametrize(
    "content",
    [
        bytes(range(256)),
        b"\x7fELF\x02\x01\x01" + bytes(500),
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(range(256)),
    ],
)
@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.html", "noname"])
def test_binary_content_is_refused_under_any_text_name(name: str, content: bytes) -> None:
    with pytest.raises(UnsupportedFormat, match=r"not text|it is a PNG image|it is a program"):
        read(name, content)


def test_stored_text_is_normalized() -> None:
    parsed = read("a.txt", "Cafe\u0301\u00ad \u200bau\ufeff lait\r\n\r\nzwei\x0b\x0bdrei\x07")

    assert parsed.text == "Café au lait\n\nzwei\n\ndrei"


def test_a_pdf_is_read_to_headings_paragraphs_rows_and_items_with_their_pages() -> None:
    def write(pdf: FPDF) -> None:
        pdf.set_font(size=20)
        pdf.cell(0, 12, "Pump manual", new_x="LMARGIN", new_y="NEXT")
        pdf.set_font(size=11)
        pdf.multi_cell(0, 5, "The bearings must be greased every 2,000 hours of operation. " * 3)
        pdf.ln(6)
        pdf.multi_cell(0, 5, "The seal is checked each week. " * 5)
        pdf.add_page()
        with pdf.table() as table:
            for cells in (("Part", "Number"), ("Seal", "P-101")):
                row = table.row()
                for cell in cells:
                    row.cell(cell)
        pdf.ln(4)
        for step in ("- Close the valve", "- Stop the motor"):
            pdf.cell(0, 6, step, new_x="LMARGIN", new_y="NEXT")

    parsed = read("manual.pdf", make_pdf(write))

    assert parsed.pages == 2
    assert [(block.page, *found) for block, found in zip(parsed.blocks, blocks(parsed), strict=True)] == [
        (1, HEADING, 1, "Pump manual"),
        (
            1,
            PARAGRAPH,
            0,
            "The bearings must be greased every 2,000 hours of operation. " * 2 + "The bearings must be"
            " greased every 2,000 hours of operation.",
        ),
        (1, PARAGRAPH, 0, ("The seal is checked each week. " * 5).strip()),
        (2, ROW, 0, "Part | Number"),
        (2, ROW, 0, "Seal | P-101"),
        (2, ITEM, 0, "Close the valve"),
        (2, ITEM, 0, "Stop the motor"),
    ]


def test_an_encrypted_pdf_is_refused_as_such() -> None:
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(make_pdf(lambda pdf: pdf.cell(text="secret")))))
    writer.encrypt("password", algorithm="AES-256")
    encrypted = io.BytesIO()
    writer.write(encrypted)

    with pytest.raises(EncryptedDocument, match="password"):
        read("a.pdf", encrypted.getvalue())


def test_a_pdf_that_needs_no_password_to_be_read_is_read() -> None:
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(make_pdf(lambda pdf: pdf.cell(text="open to all")))))
    writer.encrypt("", "owner", algorithm="AES-128")
    protected = io.BytesIO()
    writer.write(protected)

    assert read("a.pdf", protected.getvalue()).text == "open to all"


@pytest.mark.parametrize("content", [b"%PDF-1.7\nrubbish", b"%PDF-", make_pdf(lambda pdf: None)[:100]])
def test_a_damaged_pdf_is_refused_as_such(content: bytes) -> None:
    with pytest.raises(BrokenDocument, match="PDF"):
        read("a.pdf", content)


def test_a_pdf_without_text_is_refused_with_a_hint_at_recognition() -> None:
    with pytest.raises(EmptyDocument, match="OCR"):
        read("a.pdf", make_pdf(lambda pdf: pdf.rect(10, 10, 50, 50)))


def test_a_pdf_with_too_many_pages_is_refused() -> None:
    with pytest.raises(DocumentTooLarge, match="2 pages"):
        read("a.pdf", make_pdf(lambda pdf: pdf.add_page()), ParsingLimits(max_pages=1))


@pytest.mark.parametrize(("name", "content"), [("a.txt", b""), ("a.md", b"\n \n"), ("a.html", b"<p> </p>")])
def test_a_document_without_text_is_refused(name: str, content: bytes) -> None:
    with pytest.raises(EmptyDocument):
        read(name, content)


def test_more_text_than_is_allowed_is_refused() -> None:
    with pytest.raises(DocumentTooLarge, match="characters"):
        read("a.txt", "word " * 100, ParsingLimits(max_characters=99))


@pytest.mark.parametrize(
    ("name", "media_type", "content", "expected"),
    [
        ("a/B.MD", "text/html", b"x", MARKDOWN),
        ("a", "text/html; charset=utf-8", b"x", HTML),
        ("a", "", b"\n<!doctype html><p>x", HTML),
        ("a", "application/octet-stream", b"%PDF-1.4", PDF),
        ("a.csv", "", b"a,b", CSV),
        ("a.txt", "", b"%PDF-1.4", PDF),
        ("a.pdf", "", b"<!DOCTYPE html><p>x", HTML),
        ("a.txt", "", b"From: a@b.org\nDate: x\nMessage-ID: x\n\nx", PLAIN),
        ("a", "", b"From: a@b.org\nDate: x\nMessage-ID: x\n\nx", MAIL),
        ("readme", "", b"x", PLAIN),
    ],
)
def test_the_format_follows_from_the_content_then_the_name_then_the_media_type(
    name: str, media_type: str, content: bytes, expected: Format
) -> None:
    assert find_format(name, media_type, content) is expected


def pdf_of(content: str, *fonts: str) -> bytes:
    """A PDF of one page; F1 is the first of the objects that ``fonts`` are, which are numbered from 5 on."""
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [ 3 0 R ] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [ 0 0 595 842 ] /Contents 4 0 R "
        "/Resources << /Font << /F1 5 0 R >> >> >>",
        f"<< /Length {len(content)} >>\nstream\n{content}\nendstream",
        *fonts,
    ]
    pdf, table = b"%PDF-1.5\n", b""
    for number, body in enumerate(objects, start=1):
        table += b"%010d 00000 n \n" % len(pdf)
        pdf += f"{number} 0 obj\n{body}\nendobj\n".encode()
    count = len(objects) + 1
    end = f"trailer << /Root 1 0 R /Size {count} >>\nstartxref\n{len(pdf)}\n%%EOF"
    return pdf + b"xref\n0 %d\n0000000000 65535 f \n" % count + table + end.encode()


def font_descriptor(name: str) -> str:
    box = "/FontBBox [ -123 -257 1001 910 ] /ItalicAngle 0 /Ascent 723 /Descent -241 /CapHeight 709 /StemV 69"
    return f"<< /Type /FontDescriptor /FontName /{name} /Flags 6 {box} >>"


def japanese_pdf(columns: list[str], downwards: bool) -> bytes:
    """A PDF in a font of the Adobe-Japan1 collection that is not embedded; downwards in columns from right to left."""
    drawn = "\n".join(
        f"1 0 0 1 {500 - 22 * number if downwards else 72} {780 if downwards else 780 - 22 * number} Tm "
        f"<{text.encode('utf-16-be').hex()}> Tj"
        for number, text in enumerate(columns)
    )
    return pdf_of(
        f"BT /F1 14 Tf {drawn} ET",
        "<< /Type /Font /Subtype /Type0 /BaseFont /HeiseiMin-W3 /DescendantFonts [ 6 0 R ] "
        f"/Encoding /UniJIS-UCS2-{'V' if downwards else 'H'} >>",
        "<< /Type /Font /Subtype /CIDFontType0 /BaseFont /HeiseiMin-W3 /FontDescriptor 7 0 R /DW 1000 "
        "/CIDSystemInfo << /Registry (Adobe) /Ordering (Japan1) /Supplement 2 >> >>",
        font_descriptor("HeiseiMin-W3"),
    )


def arabic_pdf(lines: list[str]) -> bytes:
    """A PDF of right-aligned lines, drawn as programs do it: from left to right, with lam and alef as one glyph."""
    drawn, glyphs = [], [""]
    for number, line in enumerate(lines):
        shapes = re.findall("\u0644[\u0622\u0623\u0625\u0627]|.", line)
        glyphs += sorted(set(shapes) - set(glyphs))
        codes = "".join(f"{glyphs.index(shape):04x}" for shape in reversed(shapes))
        drawn.append(f"1 0 0 1 {500 - 7 * len(shapes)} {780 - 20 * number} Tm <{codes}> Tj")
    meanings = "\n".join(f"<{code:04x}> <{text.encode('utf-16-be').hex()}>" for code, text in enumerate(glyphs) if text)
    to_unicode = (
        "/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapType 2 def\n1 begincodespacerange\n"
        f"<0000> <ffff>\nendcodespacerange\n{len(glyphs) - 1} beginbfchar\n{meanings}\nendbfchar\nendcmap end end"
    )
    return pdf_of(
        f"BT /F1 14 Tf {' '.join(drawn)} ET",
        "<< /Type /Font /Subtype /Type0 /BaseFont /Amiri /DescendantFonts [ 6 0 R ] /Encoding /Identity-H "
        "/ToUnicode 8 0 R >>",
        "<< /Type /Font /Subtype /CIDFontType2 /BaseFont /Amiri /FontDescriptor 7 0 R /DW 500 "
        "/CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >> >>",
        font_descriptor("Amiri"),
        f"<< /Length {len(to_unicode)} >>\nstream\n{to_unicode}\nendstream",
    )


def test_arabic_lines_of_a_pdf_make_one_paragraph_with_their_ligatures_in_order() -> None:
    lines = [
        "يجب تشحيم المحامل كل ألفي ساعة، ولا يجوز غسل الأجزاء",
        "بالماء أثناء الاختبار قبل إغلاق الصمام الثالث",
        "شهريا.",
    ]
    assert read("manual.pdf", arabic_pdf(lines)).text == " ".join(lines)


@pytest.mark.parametrize("downwards", [False, True])
def test_japanese_lines_and_columns_of_a_pdf_make_one_text_without_spaces(downwards: bool) -> None:
    text = (
        "軸受は二千時間ごとに給油する。作業の前に電源を切り、手袋を着用すること。弁を閉じてから圧力計の値を確認する。"
    )
    columns = [text[start : start + 24] for start in range(0, len(text), 24)]
    assert read("manual.pdf", japanese_pdf(columns, downwards)).text == text


@pytest.mark.parametrize(
    ("name", "wrapped"),
    [
        ("a.md", "轴承每五百小时润滑一次，作业前切断\n电源。펌프의\n매월. Grease the pump\nevery 泵\nP-101 轴\n承。"),
        ("a.html", "轴承每五百小时润滑一次，作业前切断\n电源。펌프의\n매월. Grease the pump\nevery 泵\nP-101 轴\n承。"),
        ("a.txt", "油泵的轴承每五百小时润滑一次，\n作业前切断电源，戴上手套并关闭\n阀门。"),
    ],
)
def test_a_line_break_between_ideographs_is_no_space_and_between_words_is_one(name: str, wrapped: str) -> None:
    lines = wrapped.split("\n")
    joined = lines[0]
    for line in lines[1:]:
        joined += ("" if "\u4e00" <= line[0] <= "\u9fff" and not joined[-1].isascii() else " ") + line
    assert read(name, wrapped).text == joined
