"""PDFs are read in the order in which a person reads them, whatever order they were drawn in."""

from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from fpdf import FPDF
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_rag.core.documents.document import BlockKind
from edge_rag.ingest.parsing.document_format import ParsingLimits
from edge_rag.ingest.parsing.parser import read_document
from edge_rag.ingest.parsing.pdf.elements import Edge, TextElement
from edge_rag.ingest.parsing.pdf.reading_order import MAX_ELEMENTS, reading_order
from tests.support.examples import examples

PITCH = 5.0


def read(write: Callable[[FPDF], None]) -> list[tuple[BlockKind, str]]:
    pdf = FPDF()
    pdf.set_auto_page_break(False)
    pdf.add_page()
    pdf.set_font("Helvetica", size=10)
    write(pdf)
    parsed = read_document("a.pdf", "", bytes(pdf.output()), ParsingLimits())[1]
    for block in parsed.blocks:
        assert parsed.text[block.start : block.end].strip()
    return [(block.kind, parsed.text[block.start : block.end]) for block in parsed.blocks]


def texts(write: Callable[[FPDF], None]) -> list[str]:
    return [text for _, text in read(write)]


def lines(pdf: FPDF, text: str, width: float) -> list[str]:
    return list(pdf.multi_cell(width, PITCH, text, dry_run=True, output="LINES"))


def sentences(topic: str, count: int = 9) -> str:
    return " ".join(f"Sentence {number} of the {topic} says what is to be done." for number in range(count))


def draw_rows(pdf: FPDF, columns: Sequence[Sequence[str]], lefts: Sequence[float], top: float) -> float:
    """Draws line by line across all columns; returns where the next line would be."""
    for number in range(max(len(column) for column in columns)):
        for column, left in zip(columns, lefts, strict=True):
            if number < len(column) and column[number]:
                pdf.text(left, top, column[number])
        top += PITCH
    return top


@pytest.mark.parametrize(
    ("drawn", "width", "lefts"),
    [
        (("left", "right"), 88, (10, 105)),
        (("right", "left"), 88, (105, 10)),
        (("first", "second", "third"), 58, (10, 76, 142)),
    ],
)
def test_columns_that_are_drawn_row_by_row_are_read_one_after_the_other(
    drawn: Sequence[str], width: int, lefts: Sequence[int]
) -> None:
    def write(pdf: FPDF) -> None:
        draw_rows(pdf, [lines(pdf, sentences(name), width) for name in drawn], lefts, 20)

    assert texts(write) == [sentences(name) for _, name in sorted(zip(lefts, drawn, strict=True))]


def test_a_column_may_be_shorter_and_its_lines_need_not_be_level_with_the_others() -> None:
    def write(pdf: FPDF) -> None:
        draw_rows(pdf, [lines(pdf, sentences("left", 12), 88)], [10], 20)
        draw_rows(pdf, [lines(pdf, sentences("right", 5), 88)], [105], 18)

    assert texts(write) == [sentences("left", 12), sentences("right", 5)]


@pytest.mark.parametrize("ruled", [False, True])
def test_title_caption_and_a_table_in_a_column_stay_in_their_places(ruled: bool) -> None:
    rows = [("Seal kit", "P-101", "4"), ("Bearing", "P-207", "2"), ("Gasket", "P-330", "16"), ("Oil", "P-415", "1")]

    def write(pdf: FPDF) -> None:
        pdf.set_font(size=18)
        pdf.text(25, 18, "How the pump is kept running for twenty years")
        pdf.set_font(size=10)
        upper = [lines(pdf, sentences(f"upper {side}", 6), 88) for side in ("left", "right")]
        top = draw_rows(pdf, upper, (10, 105), 28)
        pdf.rect(30, top, 150, 40, style="F")
        pdf.text(50, top + 48, "Figure 3: The pump seen from the side of the motor, with its panel open")
        top += 60
        table = [[row[number] for row in rows] for number in range(3)]
        before = lines(pdf, sentences("lower left", 4), 88)
        after = lines(pdf, sentences("end of the left", 4), 88)
        right = lines(pdf, sentences("lower right", 16), 88)
        if ruled:
            for number in range(len(rows)):
                for left, width in ((10, 40), (50, 28), (78, 20)):
                    pdf.rect(left, top + PITCH * (len(before) + number) - 1.2, width, PITCH)
        cells = [["", *before, "", *table[0], "", *after], ["", *[""] * (len(before) + 1), *table[1]]]
        cells += [["", *[""] * (len(before) + 1), *table[2]], ["", *right]]
        draw_rows(pdf, cells, (12, 52, 80, 105), top - 2 * PITCH + 2.4)

    assert read(write) == [
        (BlockKind.HEADING, "How the pump is kept running for twenty years"),
        (BlockKind.PARAGRAPH, sentences("upper left", 6)),
        (BlockKind.PARAGRAPH, sentences("upper right", 6)),
        (BlockKind.PARAGRAPH, "Figure 3: The pump seen from the side of the motor, with its panel open"),
        (BlockKind.PARAGRAPH, sentences("lower left", 4)),
        *((BlockKind.TABLE_ROW, " | ".join(row)) for row in rows),
        (BlockKind.PARAGRAPH, sentences("end of the left", 4)),
        (BlockKind.PARAGRAPH, sentences("lower right", 16)),
    ]


def test_a_table_without_lines_is_read_row_by_row() -> None:
    rows = [(f"Part number {number}", f"P-{100 + number}", sentences(str(number), 1)) for number in range(12)]

    def write(pdf: FPDF) -> None:
        draw_rows(pdf, [[row[number] for row in rows] for number in range(3)], (10, 60, 90), 20)

    assert read(write) == [(BlockKind.TABLE_ROW, " | ".join(row)) for row in rows]


def test_the_lines_of_a_ruled_cell_stay_together() -> None:
    rows = [(sentences(f"part {number}", 3), sentences(f"fault {number}", 2), f"P-{number}") for number in range(5)]

    def write(pdf: FPDF) -> None:
        with pdf.table(col_widths=(40, 40, 20), first_row_as_headings=False) as table:
            for cells in rows:
                table.row(cells)

    assert read(write) == [(BlockKind.TABLE_ROW, " | ".join(row)) for row in rows]


def test_a_list_with_hanging_markers_is_no_table_and_no_column() -> None:
    def write(pdf: FPDF) -> None:
        top = 20.0
        for number in range(1, 7):
            column = lines(pdf, sentences(f"step {number}", 4), 150)
            top = draw_rows(pdf, [[f"{number}."], column], (10, 20), top)

    assert read(write) == [(BlockKind.LIST_ITEM, sentences(f"step {number}", 4)) for number in range(1, 7)]


@pytest.mark.parametrize("turned", [90, 180, 270])
def test_a_page_that_is_drawn_turned_is_read_like_an_upright_one(turned: int) -> None:
    def write(pdf: FPDF) -> None:
        with pdf.rotation(turned, 105, 148):
            columns = [lines(pdf, sentences(side, 6), 88) for side in ("left", "right")]
            draw_rows(pdf, columns, (10, 105), 100)

    assert texts(write) == [sentences("left", 6), sentences("right", 6)]


def test_a_stamp_up_the_margin_does_not_break_the_text() -> None:
    def write(pdf: FPDF) -> None:
        column = lines(pdf, sentences("text", 20), 170)
        draw_rows(pdf, [column[:6]], [20], 20)
        with pdf.rotation(90, 8, 200):
            pdf.text(8, 200, "Draft of the second of May")
        draw_rows(pdf, [column[6:]], [20], 20 + 6 * PITCH)

    assert texts(write) == [sentences("text", 20), "Draft of the second of May"]


def test_running_heads_are_kept_once_and_page_numbers_nowhere() -> None:
    def write(pdf: FPDF) -> None:
        for page in range(1, 7):
            if page > 1:
                pdf.add_page()
            pdf.text(10, 10, f"{page}")
            columns = [lines(pdf, sentences(f"{side} {page}", 12), 88) for side in ("left", "right")]
            draw_rows(pdf, columns, (10, 105), 25)
            pdf.text(10, 285, "Pump manual, second edition")

    expected = [sentences(f"{side} {page}", 12) for page in range(1, 7) for side in ("left", "right")]
    assert texts(write) == [*expected[:2], "Pump manual, second edition", *expected[2:]]


def test_lines_that_differ_in_their_numbers_only_are_all_kept() -> None:
    def write(pdf: FPDF) -> None:
        for page in range(4):
            if page:
                pdf.add_page()
            draw_rows(
                pdf,
                [[f"2026-01-{page + 1:02} {number:02}:00 pressure {40 + number}." for number in range(20)]],
                [10],
                20,
            )

    found = " ".join(texts(write))
    assert all(found.count(f"2026-01-{page + 1:02} {number:02}:00") == 1 for page in range(4) for number in range(20))


def test_columns_of_a_script_that_runs_leftwards_are_read_from_the_right() -> None:
    def column(left: float, letter: str, drawn: int) -> list[TextElement]:
        return [
            TextElement((letter * 30,), left, left + 200, 700 - 12 * row, 710 - 12 * row, 10, drawn + row, drawn + row)
            for row in range(8)
        ]

    read = reading_order([*column(300, "\u05d0", 0), *column(50, "\u05d1", 8)], [])
    assert [line.cells[0][0] for line in read] == ["\u05d0"] * 8 + ["\u05d1"] * 8


boxes = st.tuples(st.integers(0, 60), st.integers(0, 90), st.integers(1, 40), st.integers(5, 15), st.integers(0, 1))
strokes = st.builds(Edge, st.integers(0, 800), st.integers(0, 300), st.integers(300, 600), is_horizontal=st.booleans())


@given(st.lists(boxes, max_size=60), st.lists(strokes, max_size=8))
@settings(max_examples=examples(150), deadline=None)
def test_every_piece_of_text_is_read_exactly_once(
    given_boxes: list[tuple[int, int, int, int, int]], edges: list[Edge]
) -> None:
    elements: list[TextElement] = []
    line = 0
    for place, (left, row, width, size, goes_on) in enumerate(given_boxes):
        line += 1 - goes_on
        bottom = 9.0 * row
        elements.append(
            TextElement((f"<{place}>",), 10.0 * left, 10.0 * (left + width), bottom, bottom + size, size, line, place)
        )
    read = Counter("".join("".join(line.cells) for line in reading_order(elements, edges)).replace(" ", ""))
    assert read == Counter("".join(f"<{place}>" for place in range(len(elements))))


def test_more_pieces_than_a_reader_could_read_stay_as_drawn() -> None:
    elements = [
        TextElement(
            (str(place),),
            float(place % 977),
            float(place % 977) + 3,
            -float(place % 1009),
            8 - place % 1009,
            8,
            place,
            place,
        )
        for place in range(MAX_ELEMENTS + 1)
    ]
    assert [line.cells for line in reading_order(elements, [])] == [element.cells for element in elements]
