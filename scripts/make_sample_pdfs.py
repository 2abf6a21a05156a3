"""Makes the PDF files of ``deploy/samples`` from the texts in ``scripts/samples``.

The texts use three marks: ``#`` to ``###`` for headings, ``-`` for list items, and blank lines between paragraphs. The
result depends on nothing but the text: no clock, no system font.

Usage: python scripts/make_sample_pdfs.py [FOLDER]    (default: deploy/samples)
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

from fpdf import FPDF
from fpdf.enums import MethodReturnValue

REPOSITORY = Path(__file__).resolve().parents[1]
SOURCES = REPOSITORY / "scripts" / "samples"
HEADING_POINTS = {1: 20, 2: 14, 3: 12.5}
BODY_POINTS = 10.5
LINE_MM = 5.2


class SampleDocument(FPDF):  # type: ignore[misc]  # fpdf2 is untyped here
    """A4 pages with a running foot."""

    def __init__(self, title: str) -> None:
        super().__init__(format="A4")
        self.running_title = title
        self.set_title(title)
        self.set_creation_date(datetime(2026, 1, 12, tzinfo=UTC))
        self.set_margins(22, 20)
        self.set_auto_page_break(True, margin=22)
        self.add_page()

    def footer(self) -> None:
        self.set_y(-15)
        self.set_font("Helvetica", size=8)
        self.cell(0, 5, f"Harrow Lane pumping station - {self.running_title} - page {self.page_no()}", align="C")

    def block(self, text: str, style: str, points: float, *, indent: float = 0, before: float = 0) -> None:
        """Writes one paragraph and keeps it on one page."""
        self.set_font("Helvetica", style=style, size=points)
        line_mm = LINE_MM * points / BODY_POINTS
        width = self.epw - indent
        height = self.multi_cell(width, line_mm, text, dry_run=True, align="L", output=MethodReturnValue.HEIGHT)
        room_below = 2 * LINE_MM if style == "B" else 0
        if self.will_page_break(float(height) + before + room_below):
            self.add_page()
        else:
            self.ln(before)
        self.set_x(self.l_margin + indent)
        self.multi_cell(width, line_mm, text, align="L", new_x="LMARGIN", new_y="NEXT")


def render(source: str) -> SampleDocument:
    """Sets a text in the marks named above as a document."""
    blocks = [block.strip() for block in source.split("\n\n") if block.strip()]
    document = SampleDocument(blocks[0].removeprefix("# "))
    for block in blocks:
        if block.startswith("#"):
            marks, _, title = block.partition(" ")
            document.block(title, "B", HEADING_POINTS[len(marks)], before=4)
        elif block.startswith("- "):
            for item in block.split("\n"):
                document.block("- " + item.removeprefix("- "), "", BODY_POINTS, indent=4, before=1)
        else:
            document.block(block, "", BODY_POINTS, before=2)
    return document


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else REPOSITORY / "deploy" / "samples"
    folder.mkdir(parents=True, exist_ok=True)
    for source in sorted(SOURCES.glob("*.md")):
        target = folder / f"{source.stem}.pdf"
        render(source.read_text(encoding="utf-8")).output(str(target))
        print(target)


if __name__ == "__main__":
    main()
