"""Parts of a stored text against the blocks that it was built of."""

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from edge_rag.core.documents.document import BlockKind, ParsedDocument
from edge_rag.core.documents.parts import (
    MARGIN_CHARACTERS,
    ChunkPlace,
    PartKind,
    TextPart,
    parts_of,
    whole_parts,
)
from edge_rag.ingest.chunking import ChunkLimits, chunk_document
from edge_rag.ingest.parsing.document_builder import DocumentBuilder, add_records
from edge_rag.ingest.parsing.text.markdown import parse_markdown
from tests.support.examples import examples

WORDS = st.lists(st.sampled_from(["pump", "seal", "مضخة", "🔧", "oil.", "—", "p-101"]), min_size=1, max_size=8)
LINES = WORDS.map(" ".join)
BLOCKS = st.lists(
    st.one_of(
        st.tuples(st.just(BlockKind.HEADING), LINES, st.integers(1, 3)),
        st.tuples(st.sampled_from([BlockKind.PARAGRAPH, BlockKind.LIST_ITEM]), LINES, st.just(0)),
    ),
    min_size=1,
    max_size=20,
)


def places(document: ParsedDocument) -> list[ChunkPlace]:
    chunks = chunk_document(document, ChunkLimits(12, 200), lambda text: len(text.split()))
    return [ChunkPlace(chunk.start, chunk.end, chunk.context) for chunk in chunks]


def parts(document: ParsedDocument) -> list[TextPart]:
    return list(parts_of(document.text, 0, places(document)))


def table(document: ParsedDocument) -> tuple[TextPart, list[list[tuple[int, str]]]]:
    (found,) = [part for part in parts(document) if part.kind is PartKind.TABLE]
    return found, [[(cell.column, document.text[cell.start : cell.end]) for cell in row] for row in found.rows]


@given(BLOCKS)
def test_headings_are_the_headings_that_have_text_below(blocks: list[tuple[BlockKind, str, int]]) -> None:
    builder = DocumentBuilder()
    for kind, text, level in blocks:
        builder.add(kind, text, level)
    document = builder.build()
    owned = {chunk.start for chunk in places(document)}
    wanted = [
        (block.start, block.end)
        for block in document.blocks
        if block.kind is BlockKind.HEADING and block.start not in owned
    ]
    found = parts(document)
    assert [(part.start, part.end) for part in found if part.kind is PartKind.HEADING] == wanted
    at = 0
    for part in found:
        assert document.text[at : part.start].strip() == ""
        at = part.end
    assert document.text[at:].strip() == ""


def test_the_level_of_a_heading_is_its_depth() -> None:
    document = parse_markdown(b"# Pumps\n\nText.\n\n## Bearings\n\n### Grease\n\nMore.\n\n## Seals\n\nLess.\n")
    found = [(part.level, document.text[part.start : part.end]) for part in parts(document) if part.level]
    assert found == [(1, "Pumps"), (2, "Bearings"), (3, "Grease"), (2, "Seals")]


@settings(max_examples=examples(50))
@given(
    st.text(alphabet=st.sampled_from(["a", "é", "🔧", " ", "\n"]), min_size=1, max_size=30),
    st.integers(1, 2_000),
    st.data(),
)
def test_ranges_fit_together_in_both_directions(piece: str, repeated: int, data: st.DataObject) -> None:
    text = (piece * repeated)[:30_000]
    characters = len(text)
    start = data.draw(st.integers(0, characters - 1))
    end = data.draw(st.integers(start + 1, characters))

    def widened(start: int, end: int) -> tuple[int, int]:
        at = max(0, start - MARGIN_CHARACTERS)
        around = text[at : end + MARGIN_CHARACTERS]
        return whole_parts(around, at, start, end, characters)

    first, past = widened(start, end)
    assert max(0, start - MARGIN_CHARACTERS) <= first <= start
    assert end <= past <= min(characters, end + MARGIN_CHARACTERS)
    if past < characters:
        assert widened(past, min(characters, past + 500))[0] == past
    if first > 0:
        assert widened(max(0, first - 500), first)[1] == first


@given(
    st.lists(st.sampled_from(["Part", "Number", "Price", "Part no", "Type"]), min_size=2, max_size=5, unique=True),
    st.data(),
)
def test_records_come_back_in_their_columns_with_empty_cells(header: list[str], data: st.DataObject) -> None:
    cells = st.sampled_from(["", "P-101", "a | b", "Seal: x", "12", "🔧 مضخة"])
    rows = data.draw(st.lists(st.lists(cells, min_size=len(header), max_size=len(header)), min_size=2, max_size=6))
    rows = [row for row in rows if any(row)]
    assume(rows)
    builder = DocumentBuilder()
    add_records(builder, [header, *rows])
    document = builder.build()
    found, text = table(document)
    assert (found.header, found.columns) == (0, len(header))
    assert text[0] == list(enumerate(header))
    assert text[1:] == [[(column, cell) for column, cell in enumerate(row) if cell] for row in rows]


def test_a_title_above_records_spans_the_table() -> None:
    builder = DocumentBuilder()
    add_records(builder, [["Spare parts"], ["Part", "Number"], ["Seal", "P-101"], ["", "P-102"]])
    document = builder.build()
    found, text = table(document)
    assert (found.header, found.rows[0][0].columns) == (1, 2)
    assert text == [[(0, "Spare parts")], [(0, "Part"), (1, "Number")], [(0, "Seal"), (1, "P-101")], [(1, "P-102")]]


def test_cells_of_a_markdown_table_keep_their_columns() -> None:
    source = (
        b"Before.\n\n| Part | Number | Price |\n|---|---|---|\n| Seal | | 3 |\n| | P-102 | |\n| Ring | P-103 | 4 |\n"
    )
    found, text = table(parse_markdown(source))
    assert (found.header, found.columns) == (0, 3)
    assert text[1:3] == [[(0, "Seal"), (1, ""), (2, "3")], [(0, ""), (1, "P-102"), (2, "")]]


def test_a_row_with_fewer_cells_claims_no_columns() -> None:
    builder = DocumentBuilder()
    for row in ("Part | Number | Price", "Seal | P-101 | 3", "Ring | 4"):
        builder.add(BlockKind.TABLE_ROW, row)
    found, text = table(builder.build())
    assert text[2] == [(0, "Ring | 4")]
    assert found.rows[2][0].columns == 3


def test_what_may_be_no_table_stays_text() -> None:
    for source in (
        b"One | line.\n",
        b"```\nif a:\n    b | c\n    d | e\n```\n",
        b"- one\n- two | three\n- four\n",
        b"A paragraph of\ntwo | lines.\n",
    ):
        assert [part.kind for part in parts(parse_markdown(source))] == [PartKind.TEXT]
