"""Where the text of a PDF is on its pages, and pictures of them."""

import ctypes
import io
import re
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import closing

import pypdfium2
import pypdfium2.raw as pdfium
import pytest
from fpdf import FPDF
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from edge_rag.core.documents.document import ParsedDocument
from edge_rag.errors import BrokenDocument
from edge_rag.ingest.page_images import encode_png, stretches
from edge_rag.ingest.parsing.document_builder import normalize
from edge_rag.ingest.parsing.document_format import ParsingLimits
from edge_rag.ingest.parsing.pages import BOX_SCALE, PACKED, DocumentBoxes, PageBoxes, Picture, RelativeBox
from edge_rag.ingest.parsing.pdf.boxes import Unit, align
from edge_rag.ingest.parsing.pdf.ocr import NO_RECOGNIZER, Recognizer, Scan
from edge_rag.ingest.parsing.pdf.pdf import parse_pdf, pdf_boxes, pdf_picture
from edge_rag.ingest.parsing.sandbox.messages import decode_boxes, decode_picture, encode_boxes
from edge_rag.ingest.parsing.sandbox.process import ParserProcess

LIMITS = ParsingLimits()
SENTENCES = (
    "The bearings of the pump must be greased every 2,000 operating hours.",
    "Use lithium grease only, and wipe off the excess before you start the well-known machine again.",
    "Close the suction valve before you open the strainer.",
)


def in_columns(pdf: FPDF) -> None:
    pdf.set_font("Helvetica", size=18)
    pdf.cell(0, 12, "Maintenance of the pump", new_x="LMARGIN", new_y="NEXT")
    pdf.set_font("Helvetica", size=10)
    with pdf.text_columns(ncols=3, gutter=8, text_align="J", line_height=1.4) as columns:
        columns.write(" ".join(f"In step {number} {' '.join(SENTENCES)}" for number in range(9)))


def with_table_and_list(pdf: FPDF) -> None:
    pdf.set_font("Helvetica", size=10)
    for number, sentence in enumerate(SENTENCES, start=1):
        pdf.multi_cell(0, 6, f"{number}. {sentence}", new_x="LMARGIN", new_y="NEXT")
    with pdf.table() as table:
        for number in range(4):
            row = table.row()
            for cell in ("Part", f"P-10{number}", "Seal of the pump"):
                row.cell(cell)


def hyphenated(pdf: FPDF) -> None:
    pdf.set_font("Helvetica", size=11)
    for line in (
        "The lubri-",
        "cation of the gear-",
        "box and of the well-",
        "known bearing is checked",
        "each month.",
    ):
        pdf.cell(0, 5, line, new_x="LMARGIN", new_y="NEXT")


def in_many_letters(pdf: FPDF) -> None:
    pdf.set_font("Times", size=12)
    pdf.multi_cell(
        0, 7, "\u00dcberpr\u00fcfe \u00f6l and caf\u00e9: 12 \u00b5m, \u00bd turn, na\u00efve, 5 \u00b0C. " * 4
    )


LAYOUTS = (in_columns, with_table_and_list, hyphenated, in_many_letters)


def written(*pages: Callable[[FPDF], None], turned: int = 0) -> bytes:
    """A PDF with a page of each kind; all are shown turned by so many degrees."""
    pdf = FPDF()
    for write in pages:
        pdf.add_page()
        write(pdf)
    if not turned:
        return bytes(pdf.output())
    document = pypdfium2.PdfDocument(bytes(pdf.output()))
    for page in document:
        page.set_rotation(turned)
    target = io.BytesIO()
    document.save(target)
    return target.getvalue()


def text_under(document: pypdfium2.PdfDocument, page: PageBoxes, box: RelativeBox) -> str:
    """What PDFium says is drawn within a box."""
    drawn = document[page.page - 1]

    def point(across: float, down: float) -> tuple[float, float]:
        x, y = ctypes.c_double(), ctypes.c_double()
        scale = 1 << 20
        place = round(across * scale / BOX_SCALE), round(down * scale / BOX_SCALE)
        pdfium.FPDF_DeviceToPage(drawn, 0, 0, scale, scale, 0, *place, ctypes.byref(x), ctypes.byref(y))
        return x.value, y.value

    left, top, right, bottom = box
    inset = min(right - left, bottom - top) / 12  # lines above and below reach into the box a little
    (x0, y0), (x1, y1) = point(left + inset, top + inset), point(right - inset, bottom - inset)
    return str(drawn.get_textpage().get_text_bounded(min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)))


def letters(text: str) -> str:
    return re.sub(r"[\s|\u0002\ufffe-]", "", unicodedata.normalize("NFKC", normalize(text)))


def words(text: str) -> Iterator[tuple[int, int]]:
    yield from (found.span() for found in re.finditer(r"[^\s|]+", text))


@pytest.mark.parametrize("turned", [0, 90, 180, 270])
@pytest.mark.parametrize("write", LAYOUTS)
def test_under_the_boxes_of_every_word_is_that_word(write: Callable[[FPDF], None], turned: int) -> None:
    content = written(write, turned=turned)
    parsed = parse_pdf(content, LIMITS, NO_RECOGNIZER)
    (page,) = pdf_boxes(content, LIMITS, NO_RECOGNIZER, 1).pages
    document = pypdfium2.PdfDocument(content)
    assert (page.width > page.height) is (turned in (90, 270))
    checked = 0
    for start, end in words(parsed.text):
        boxes = stretches(page, start, end)
        found = "".join(text_under(document, page, box) for box in boxes)
        assert letters(found) == letters(parsed.text[start:end])
        checked += 1
    assert checked > 10


def test_a_sentence_over_several_lines_has_a_box_for_each_of_them() -> None:
    content = written(in_columns)
    parsed = parse_pdf(content, LIMITS, NO_RECOGNIZER)
    (page,) = pdf_boxes(content, LIMITS, NO_RECOGNIZER, 1).pages
    document = pypdfium2.PdfDocument(content)
    start = parsed.text.index(SENTENCES[1])
    boxes = stretches(page, start, start + len(SENTENCES[1]))
    assert len(boxes) > 2
    assert letters("".join(text_under(document, page, box) for box in boxes)) == letters(SENTENCES[1])
    assert max(right - left for left, _, right, _ in boxes) < BOX_SCALE / 3  # within its column
    assert stretches(page, start, start) == ()


def test_boxes_of_a_page_are_those_of_the_whole_document_whatever_page_is_asked() -> None:
    content = written(in_columns, with_table_and_list, hyphenated)
    parsed = parse_pdf(content, LIMITS, NO_RECOGNIZER)
    found = [pdf_boxes(content, LIMITS, NO_RECOGNIZER, number) for number in (1, 2, 3)]
    assert found[0] == found[1] == found[2]
    positions = [each.position for page in found[0].pages for each in page.characters()]
    assert sorted(positions) == positions
    missing = {at for at, letter in enumerate(parsed.text) if not letter.isspace()} - set(positions)
    assert {parsed.text[at] for at in missing} <= {"|"}


def test_of_a_large_document_the_page_and_those_beside_it_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    content = written(*(in_columns for _ in range(5)))
    everything = pdf_boxes(content, LIMITS, NO_RECOGNIZER, 4)
    one = len(everything.pages[3].packed) // PACKED.size
    monkeypatch.setattr("edge_rag.ingest.parsing.pdf.boxes.MAX_CHARACTERS", 3 * one)
    some = pdf_boxes(content, LIMITS, NO_RECOGNIZER, 4)
    assert 4 in [page.page for page in some.pages]
    assert 1 < len(some.pages) < 5
    assert all(page == everything.pages[page.page - 1] for page in some.pages)
    monkeypatch.setattr("edge_rag.ingest.parsing.pdf.boxes.MAX_CHARACTERS", 1)
    assert pdf_boxes(content, LIMITS, NO_RECOGNIZER, 4).pages == (everything.pages[3],)


def test_words_of_a_scan_are_where_ocr_found_them() -> None:
    picture = io.BytesIO()
    Image.new("L", (1000, 1000), 255).save(picture, "png")
    pdf = FPDF(unit="pt", format=(720, 720))
    pdf.add_page()
    pdf.image(picture, 0, 0, 720, 720)
    head = "level\tpage_num\tblock_num\tpar_num\tline_num\tword_num\tleft\ttop\twidth\theight\tconf\ttext"
    seen: list[Scan] = []

    def read(scan: Scan) -> bytes:
        seen.append(scan)
        rows = ((0.1, 0.2, "Grease"), (0.3, 0.2, "the"), (0.5, 0.2, "pump."))
        table = (
            f"5\t1\t1\t1\t1\t{number}\t{int(left * scan.width)}\t{int(top * scan.height)}"
            f"\t{scan.width // 10}\t{scan.height // 50}\t96\t{word}"
            for number, (left, top, word) in enumerate(rows, start=1)
        )
        return "\n".join((head, *table)).encode()

    found = pdf_boxes(bytes(pdf.output()), LIMITS, Recognizer("", read), 1)
    (page,) = found.pages
    (left, top, right, bottom), *others = stretches(page, 7, 10)  # the
    assert others == []
    expected = (0.3, 0.2, 0.4, 0.22)
    assert [side / BOX_SCALE for side in (left, top, right, bottom)] == pytest.approx(expected, abs=0.002)
    assert len(seen) == 1


@pytest.mark.parametrize("turned", [0, 90])
@pytest.mark.parametrize("width", [1, 333, 1200])
def test_a_picture_has_the_width_asked_for_and_the_shape_of_the_page(width: int, turned: int) -> None:
    content = written(in_columns, turned=turned)
    drawn = pdf_picture(content, 1, width, ())
    shown = Image.open(io.BytesIO(encode_png(drawn)))
    ratio = 297 / 210 if not turned else 210 / 297
    assert shown.size == (width, max(1, round(width * ratio)))
    assert shown.mode == "RGB"
    assert shown.tobytes() == drawn.pixels
    shown.load()


def test_a_marked_range_is_yellow_and_its_letters_stay_black() -> None:
    content = written(hyphenated)
    plain = Image.frombytes("RGB", (600, 849), pdf_picture(content, 1, 600, ()).pixels)
    half = BOX_SCALE // 2
    marked = Image.frombytes("RGB", (600, 849), pdf_picture(content, 1, 600, ((0, 0, half, half),)).pixels)
    assert (plain.getpixel((2, 2)), marked.getpixel((2, 2))) == ((255, 255, 255), (255, 230, 90))
    assert marked.getpixel((599, 848)) == (255, 255, 255)
    darkest = min(range(600 * 424), key=lambda at: sum(plain.getpixel((at % 600, at // 600))))  # type: ignore[arg-type]
    place = darkest % 600, darkest // 600
    red, green, blue = plain.getpixel(place)  # type: ignore[misc]
    assert red < 50
    assert marked.getpixel(place) == (red, green * 230 // 255, blue * 90 // 255)


def test_the_confined_process_draws_and_finds_what_this_one_does_and_a_broken_file_ends_only_its_request() -> None:
    content = written(in_columns, hyphenated, turned=90)
    with closing(ParserProcess(LIMITS)) as parser:
        marks = ((100, 100, 30_000, 4_000),)
        assert parser.draw(content, 2, 500, marks) == pdf_picture(content, 2, 500, marks)
        assert parser.boxes(content, 1) == pdf_boxes(content, LIMITS, NO_RECOGNIZER, 1)
        for broken in (b"%PDF-1.7", content[:500], b"GIF89a"):
            with pytest.raises(BrokenDocument):
                parser.draw(broken, 1, 500, ())
            with pytest.raises(BrokenDocument):
                parser.boxes(broken, 1)
        with pytest.raises(BrokenDocument, match="no page 3"):
            parser.draw(content, 3, 500, ())
        assert isinstance(parser.read("a.pdf", "", content)[1], ParsedDocument)


PAGE = PageBoxes(1, 595.0, 842.0, PACKED.pack(0, 0, 1, 2, 3, 4) + PACKED.pack(5, 1, 1, 2, 3, 4))


@pytest.mark.parametrize(
    "page",
    [
        PageBoxes(0, 595.0, 842.0, b""),
        PageBoxes(10**6, 595.0, 842.0, b""),
        PageBoxes(1, float("nan"), 842.0, b""),
        PageBoxes(1, 595.0, -1.0, b""),
        PageBoxes(1, 595.0, 842.0, PAGE.packed[:16] * 2),
        PageBoxes(1, 595.0, 842.0, PAGE.packed[:20]),
        PageBoxes(1, 595.0, 842.0, PACKED.pack(0, 0, 3, 2, 1, 4)),
        PageBoxes(1, 595.0, 842.0, PACKED.pack(1 << 31, 0, 1, 2, 3, 4)),
    ],
)
def test_boxes_that_no_sound_process_sends_are_refused(page: PageBoxes) -> None:
    with pytest.raises(ValueError, match=r"page|box|multiple"):
        decode_boxes(encode_boxes(DocumentBoxes("ab" * 32, (page,))), LIMITS)


@given(st.binary(max_size=200), st.integers(1, 3000))
def test_no_bytes_of_a_process_are_taken_for_what_they_are_not(body: bytes, width: int) -> None:
    for prefix in (b"", b"P", b"B", b"A"):
        for decode in (lambda body: decode_picture(body, width), lambda body: decode_boxes(body, LIMITS)):
            try:
                found = decode(prefix + body)
            except ValueError:
                continue
            assert isinstance(found, DocumentBoxes | Picture)
            if isinstance(found, Picture):
                assert len(found.pixels) == 3 * found.width * found.height


def units(*stretch: str) -> list[Unit]:
    return [Unit(letter, at == len(part) - 1) for part in stretch for at, letter in enumerate(part)]


@pytest.mark.parametrize(
    ("drawn", "text", "dropped", "came_from"),
    [
        (("ab", "c"), "ab c", 0, [0, 1, None, 2]),
        (("lubri-", "cation"), "lubrication", 0, [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11]),
        (("well-", "known"), "well-known", 0, list(range(10))),
        (("1.", "Oil"), "Oil", 2, [2, 3, 4]),
        (("\u2022", "1 bar"), "1 bar", 1, [1, None, 3, 4, 5]),
        (("a", "b"), "a | b", 0, [0, None, None, None, 1]),
        (("e\u0301x",), "\u00e9x", 0, [0, 2]),
        (("\u00e9x",), "\u00e9x", 0, [0, 1]),
        (("a\u200bb",), "ab", 0, [0, 2]),
        (("abc",), "axc", 0, [0, None, None]),
        ((), "abc", 0, [None, None, None]),
        (("abc",), "", 3, []),
    ],
)
def test_characters_are_followed_into_the_text(
    drawn: tuple[str, ...], text: str, dropped: int, came_from: list[int | None]
) -> None:
    assert align(units(*drawn), text, dropped) == came_from


@given(
    st.lists(st.text(st.characters(codec="utf-8", categories=("L", "M", "N", "P")), min_size=1, max_size=8), max_size=8)
)
def test_what_is_only_joined_and_normalized_is_followed_to_the_last_character(parts: list[str]) -> None:
    text = normalize(" ".join(parts))
    found = align(units(*parts), text, 0)
    sources = [source for source in found if source is not None]
    assert sources == sorted(sources)
    flat = "".join(parts)
    for at, source in enumerate(found):
        if source is not None:
            base = unicodedata.normalize("NFD", normalize(flat[source]))
            assert base[:1] == unicodedata.normalize("NFD", text[at])[:1] or unicodedata.combining(text[at])
