"""Pages of stored documents: kept for the next request, and never for a document that is gone."""

import io
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from fpdf import FPDF
from PIL import Image

from edge_rag.bootstrap.open_directory import OpenDirectory
from edge_rag.core.documents.document import Upload
from edge_rag.errors import CollectionNotFound, DocumentNotFound, InvalidRequest, PageUnavailable
from edge_rag.ingest.page_images import PageImages
from edge_rag.ingest.parsing.document_format import ParsingLimits
from edge_rag.ingest.parsing.sandbox.pool import ParserPool
from edge_rag.ingest.parsing.sandbox.process import ParserProcess
from edge_rag.storage.database import connect
from tests.unit.retriever.hashed_words import HashedWords

SENTENCE = "The bearings of the pump must be greased every 2,000 operating hours."


def manual(*pages: str, size: tuple[float, float] = (595, 842)) -> bytes:
    pdf = FPDF(unit="pt", format=size)
    for text in pages:
        pdf.add_page()
        pdf.set_font("Helvetica", size=11)
        pdf.multi_cell(0, 16, text)
    return bytes(pdf.output())


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[OpenDirectory]:
    with closing(OpenDirectory(tmp_path / "data", HashedWords())) as opened:
        yield opened


@pytest.fixture
def opened_by(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What parser processes were asked for, in order."""
    asked: list[str] = []
    ask = ParserProcess._ask

    def recorded(self: ParserProcess, request: dict[str, object], *rest: object) -> object:
        asked.append(str(request["task"]))
        return ask(self, request, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(ParserProcess, "_ask", recorded)
    return asked


def put(directory: OpenDirectory, name: str, content: bytes) -> None:
    outcome = directory.library.ingest(Upload.of_bytes("default", name, "", content))
    assert outcome.document is not None, outcome.reason


def test_a_page_is_drawn_once_and_a_document_read_once(directory: OpenDirectory, opened_by: list[str]) -> None:
    put(directory, "a.pdf", manual(SENTENCE, f"Then: {SENTENCE}"))
    opened_by.clear()
    first = [directory.pages.picture("default", "a.pdf", 1, 200, (0, 12)) for _ in range(3)]
    boxes = [directory.pages.boxes("default", "a.pdf", page, 0, 200) for page in (1, 2, 1)]
    assert opened_by == ["boxes", "picture"]
    assert len({each.png for each in first}) == 1
    assert [len(each.boxes) for each in boxes] == [1, 1, 1]
    directory.pages.picture("default", "a.pdf", 1, 201, (0, 12))
    directory.pages.picture("default", "a.pdf", 1, 200)
    assert opened_by == ["boxes", "picture", "picture", "picture"]


def test_a_document_that_is_replaced_or_deleted_is_not_shown_any_more(directory: OpenDirectory) -> None:
    put(directory, "a.pdf", manual(SENTENCE))
    before = directory.pages.picture("default", "a.pdf", 1, 200).png
    put(directory, "a.pdf", manual("Nothing of the kind is written here."))
    after = directory.pages.picture("default", "a.pdf", 1, 200).png
    assert before != after
    directory.library.delete("default", "a.pdf")
    with pytest.raises((CollectionNotFound, DocumentNotFound)):
        directory.pages.picture("default", "a.pdf", 1, 200)


def test_a_text_that_was_made_otherwise_has_no_boxes_but_its_page_can_be_seen(
    directory: OpenDirectory, tmp_path: Path
) -> None:
    put(directory, "a.pdf", manual(SENTENCE))
    with closing(connect(tmp_path / "data" / "documents.sqlite3")) as connection:
        connection.execute("UPDATE documents SET text = replace(text, 'pump', 'mill')")
    with pytest.raises(PageUnavailable, match="made by another version"):
        directory.pages.boxes("default", "a.pdf", 1, 0, 10)
    picture = Image.open(io.BytesIO(directory.pages.picture("default", "a.pdf", 1, 100).png))
    assert picture.size == (100, 142)


def test_a_page_that_cannot_be_drawn_so_large_says_how_large(directory: OpenDirectory) -> None:
    put(directory, "strip.pdf", manual("Oil.", size=(100, 2000)))
    with pytest.raises(PageUnavailable, match=r"'strip\.pdf' cannot be shown: .*a width of at most 547"):
        directory.pages.picture("default", "strip.pdf", 1, 2000)
    with pytest.raises(InvalidRequest, match="width"):
        directory.pages.picture("default", "strip.pdf", 1, 2001)


def test_no_more_is_kept_than_fits(directory: OpenDirectory, opened_by: list[str]) -> None:
    put(directory, "a.pdf", manual(SENTENCE))
    parsers = ParserPool(lambda: ParserProcess(ParsingLimits()), 1)
    size = len(directory.pages.picture("default", "a.pdf", 1, 103).png)
    pages = PageImages(directory.documents, parsers, capacity_bytes=2 * 3 * size)  # half of it for pictures
    try:
        opened_by.clear()
        for width in (100, 101, 102, 103, 100):
            pages.picture("default", "a.pdf", 1, width)
        assert opened_by == ["picture"] * 5
        pages.picture("default", "a.pdf", 1, 100)
        assert opened_by == ["picture"] * 5
    finally:
        parsers.close()
