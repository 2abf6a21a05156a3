"""Scanned PDFs: read where Tesseract is installed, refused with what to install where it is not."""

import io
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from fpdf import FPDF
from PIL import Image, ImageDraw, ImageFont

from edge_rag.cli.health_checks import Verdict, ocr_check
from edge_rag.errors import DocumentTooLarge, EmptyDocument
from edge_rag.ingest.parsing.document_format import ParsingLimits
from edge_rag.ingest.parsing.pdf.ocr import AUTO, Scan, TesseractOcr, recognized_lines, recognized_words
from edge_rag.ingest.parsing.sandbox.process import ParserProcess

_PROBLEM = TesseractOcr("eng").problem()
needs_tesseract = pytest.mark.skipif(_PROBLEM != "", reason=_PROBLEM)
_TABLE_HEAD = "level\tpage_num\tblock_num\tpar_num\tline_num\tword_num\tleft\ttop\twidth\theight\tconf\ttext"


def scanned(pages: Sequence[Sequence[str]], text_pages: int = 0, turned: int = 0) -> bytes:
    """A PDF of pictures of text, 150 dots an inch, after some pages of real text."""
    pdf = FPDF()
    pdf.set_font("Helvetica", size=12)
    for number in range(text_pages):
        pdf.add_page()
        pdf.multi_cell(0, 6, f"Chapter {number} says how often the oil of the gearbox is changed.")
    for lines in pages:
        picture = Image.new("L", (1240, 1754), 255)
        draw = ImageDraw.Draw(picture)
        for number, line in enumerate(lines):
            draw.text((120, 150 + 46 * number), line, font=ImageFont.load_default(34), fill=0)
        target = io.BytesIO()
        picture.rotate(turned, expand=True).save(target, "png")
        pdf.add_page()
        pdf.image(target, 0, 0, 210, 297)
    return bytes(pdf.output())


def read(content: bytes, limits: ParsingLimits | None = None, languages: str = AUTO) -> list[tuple[int | None, str]]:
    parser = ParserProcess(limits or ParsingLimits(), languages)
    try:
        parsed = parser.read("scan.pdf", "", content)[1]
    finally:
        parser.close()
    return [(block.page, parsed.text[block.start : block.end]) for block in parsed.blocks]


@needs_tesseract
def test_scanned_pages_are_read_with_their_page_numbers_among_pages_of_text() -> None:
    content = scanned([["Grease the bearings", "every 2,000 hours.", "", "Wear gloves."], ["Close the valve."]], 1)

    assert read(content) == [
        (1, "Chapter 0 says how often the oil of the gearbox is changed."),
        (2, "Grease the bearings every 2,000 hours."),
        (2, "Wear gloves."),
        (3, "Close the valve."),
    ]


@needs_tesseract
def test_more_scanned_pages_than_are_read_are_refused() -> None:
    with pytest.raises(DocumentTooLarge, match="2 of its pages are scans, at most 1"):
        read(scanned([["one"], ["two"]]), ParsingLimits(max_scanned_pages=1))


def test_a_scan_is_refused_with_what_to_install_where_there_is_no_tesseract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(EmptyDocument, match="apt-get install tesseract-ocr tesseract-ocr-eng tesseract-ocr-deu"):
        read(scanned([["Grease it."]]), languages="eng+deu")


@pytest.mark.skipif(shutil.which("tesseract") is None, reason="no Tesseract: apt-get install tesseract-ocr")
def test_a_language_that_is_not_installed_is_named() -> None:
    has = r"ingest\.scan_languages names xyz, which Tesseract does not have \(installed: [a-z_, ]*eng[a-z_, ]*\)"
    with pytest.raises(EmptyDocument, match=rf"{has}: change it, or apt-get install tesseract-ocr-xyz$"):
        read(scanned([["Grease it."]]), languages="eng+xyz")


def scripted_tesseract(folder: Path, *installed: str) -> str:
    """Returns a PATH with a program that has some languages and reads every page as the names of those it is to use."""
    program = folder / "tesseract"
    program.write_text(
        '#!/bin/sh\nif [ "$1" = --list-langs ]; then printf "%s\\n" "List of languages in \\"x\\" (9):" '
        + " ".join(installed)
        + '; else cat >/dev/null; printf "%b\\n" "'
        + _TABLE_HEAD.replace("\t", "\\t")
        + '" "5\\t1\\t1\\t1\\t1\\t1\\t0\\t0\\t50\\t20\\t96\\t$4"; fi\n'
    )
    program.chmod(0o700)
    return f"{folder}:/usr/bin:/bin"


def test_pages_are_read_in_the_installed_languages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", scripted_tesseract(tmp_path, "jpn_vert", "osd", "eng", "jpn"))
    assert read(scanned([["Grease it."]])) == [(1, "jpn+jpn_vert+eng")]


@pytest.mark.parametrize(
    ("setting", "installed", "used"),
    [
        ("auto", "eng osd", "eng"),
        ("auto", "eng osd deu equ script/Latin", "deu+eng"),
        ("auto", "deu", "deu"),
        ("auto", "eng a b c d e", "a+b+c+d+e+eng"),
        ("auto", "eng a b c d e f", "eng"),
        ("auto", "a b c d e f g", "a+b+c+d+e+f"),
        ("deu+eng", "eng deu fra", "deu+eng"),
    ],
)
def test_the_doctor_names_the_languages_that_are_installed_and_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, setting: str, installed: str, used: str
) -> None:
    monkeypatch.setenv("PATH", scripted_tesseract(tmp_path, *installed.split()))
    check = ocr_check(setting)
    listed = ", ".join(sorted(set(installed.split()) - {"osd", "equ", "script/Latin"}))
    assert check.detail == f"scanned pages are read in {used}; Tesseract has {listed}"
    too_many = len(installed.split()) > 6
    assert check.verdict is (Verdict.WARN if too_many else Verdict.OK)
    assert ("ingest.scan_languages" in check.advice) == too_many


@pytest.mark.parametrize("setting", ["auto", "deu"])
def test_the_doctor_says_what_ocr_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, setting: str) -> None:
    monkeypatch.setenv("PATH", scripted_tesseract(tmp_path, "osd", *["eng"] * (setting == "deu")))
    check = ocr_check(setting)
    assert check.verdict is (Verdict.OK if setting == "auto" else Verdict.WARN)
    assert "apt-get install tesseract-ocr-" in check.advice
    assert ("(installed: eng)" in check.advice) == (setting == "deu")


def test_pages_that_were_not_read_are_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    parser = ParserProcess(ParsingLimits())
    try:
        parsed = parser.read("scan.pdf", "", scanned([["Grease it."], ["Close it."]], text_pages=3))[1]
    finally:
        parser.close()
    assert [block.page for block in parsed.blocks] == [1, 2, 3]
    note = parsed.note
    assert note.startswith("not read: pages 4, 5, which are scans")
    assert "apt-get install tesseract-ocr" in note


def test_a_recognizer_that_fails_on_every_page_leaves_a_document_without_text(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "tesseract"
    program.write_text('#!/bin/sh\nif [ "$1" = --list-langs ]; then echo eng; else kill -SEGV $$; fi\n')
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(EmptyDocument, match="has text"):
        read(scanned([["Grease it."]]))


PAGE = Scan(500, 100, 72, b"")


@pytest.mark.parametrize("words", [b"", b"rubbish", b"\xff\xfe", b"level\ttext\n5\tx\n"])
def test_words_that_make_no_sense_are_no_lines(words: bytes) -> None:
    assert recognized_words(words, PAGE) == []


def test_words_without_spaces_and_from_right_to_left_make_lines_of_their_script() -> None:
    rows = (
        "5\t1\t1\t1\t1\t1\t0\t0\t50\t20\t96\t軸受",
        "5\t1\t1\t1\t1\t2\t55\t0\t20\t20\t96\tは",
        "5\t1\t1\t1\t1\t3\t80\t0\t50\t20\t96\tP-101",
        "5\t1\t1\t1\t1\t4\t135\t0\t20\t20\t96\tで",
        "5\t1\t1\t1\t1\t5\t155\t0\t5\t20\t96\t。",
        "5\t1\t2\t1\t1\t1\t400\t0\t50\t20\t96\tزيت",
        "5\t1\t2\t1\t1\t2\t345\t0\t50\t20\t96\tالمضخة",
        "5\t1\t2\t1\t1\t3\t0\t0\t50\t20\t96\tشهري",
    )
    lines = recognized_lines(recognized_words("\n".join((_TABLE_HEAD, *rows)).encode(), PAGE), 10.0)
    assert [line.cells for line in lines] == [("軸受は P-101 で。",), ("زيت المضخة", "شهري")]


def test_paragraphs_and_cells_are_those_of_the_recognized_page() -> None:
    rows = (
        "5\t1\t1\t1\t1\t1\t0\t0\t50\t20\t96\tSeal",
        "5\t1\t1\t1\t1\t2\t400\t0\t50\t20\t96\tP-101",
        "5\t1\t1\t1\t2\t1\t0\t30\t50\t20\t9\tnoise",
        "5\t1\t2\t1\t1\t1\t0\t90\t50\t20\t90\tDone",
    )
    lines = recognized_lines(recognized_words("\n".join((_TABLE_HEAD, *rows)).encode(), PAGE), 10.0)
    assert [line.cells for line in lines] == [("Seal", "P-101"), ("Done",)]
    assert lines[0].bottom - lines[1].bottom > 40
