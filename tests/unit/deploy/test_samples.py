"""The sample documents: enough of them, of every format, and made from what is committed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pypdfium2

ROOT = Path(__file__).parents[3]
SAMPLES = ROOT / "deploy" / "samples"


def pdf_text(path: Path) -> list[str]:
    document = pypdfium2.PdfDocument(path)
    try:
        return [page.get_textpage().get_text_range() for page in document]
    finally:
        document.close()


def test_there_are_documents_of_every_format() -> None:
    files = [path.suffix for path in SAMPLES.iterdir()]
    assert len(files) >= 10
    assert set(files) == {".md", ".txt", ".html", ".pdf"}


def test_the_pdf_files_are_what_their_script_makes(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, str(ROOT / "tests" / "fixtures" / "makers" / "make_sample_pdfs.py"), str(tmp_path)], check=True
    )
    made = {path.name: pdf_text(path) for path in tmp_path.glob("*.pdf")}
    assert made == {path.name: pdf_text(path) for path in SAMPLES.glob("*.pdf")}
    assert len(made) == 2
    assert len(made["operating-manual.pdf"]) > 1


def test_the_greasing_interval_is_one_sentence() -> None:
    sentence = (
        "The pump bearings must be greased every 2,000 operating hours or every three months, whichever comes first."
    )
    assert sentence in (SAMPLES / "lubrication-schedule.md").read_text()
