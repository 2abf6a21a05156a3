"""Documents that repeat what is expensive are read in time that grows with their size, or refused at a bound of it.

The bound is processor time of the parser process, set by the daemon, so that load of this machine changes no outcome.
"""

import unicodedata
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.documents.document import BlockKind
from edge_rag.errors import DocumentRejected, DocumentTooLarge
from edge_rag.ingest.parsing.document_builder import BlockWriter, DocumentBuilder, normalize
from edge_rag.ingest.parsing.document_format import ParsingLimits
from edge_rag.ingest.parsing.parser import read_document
from edge_rag.ingest.parsing.sandbox.process import ParserProcess
from tests.support.hostile_files import bomb
from tests.support.pathological_files import endless_files, mail, pathological_files
from tests.unit.ingest.sample_files import SAMPLES

_GENEROUS = ParsingLimits(cpu_seconds=12)
_STRICT = ParsingLimits(cpu_seconds=1)
_FEW_UNPACKED = ParsingLimits(max_unpacked_bytes=2**20)


@pytest.fixture(scope="module")
def parser() -> Iterator[ParserProcess]:
    process = ParserProcess(_GENEROUS, "none")
    yield process
    process.close()


@pytest.mark.parametrize("what", sorted(pathological_files()))
def test_a_document_that_repeats_one_thing_is_read_within_its_processor_time(parser: ParserProcess, what: str) -> None:
    name, make = pathological_files()[what]
    content = make()
    try:
        parser.read(name, "", content)
    except DocumentRejected as error:
        assert "of parsing" not in str(error)
        assert "takes longer" not in str(error)
    assert parser.pid is not None


@pytest.mark.parametrize("what", sorted(endless_files()))
def test_a_document_that_would_take_minutes_is_refused_with_the_reason(what: str) -> None:
    name, make = endless_files()[what]
    parser = ParserProcess(_STRICT, "none")
    try:
        # Of drawn pictures the memory may end first.
        with pytest.raises(DocumentTooLarge, match=r"needs more than 1 s of parsing|takes more memory than is allowed"):
            parser.read(name, "", make())
        assert parser.read("a.txt", "", b"Still here.")[1].text == "Still here."
    finally:
        parser.close()


def test_attachments_above_the_limit_are_named_and_not_read() -> None:
    parsed = read_document("a.eml", "", mail([("a.txt", b"seal")] * 1_002), ParsingLimits())[1]
    assert parsed.text.count("seal") == 1_000
    assert parsed.text.count("not read: a.txt (the document has more than 1,000 attachments)") == 2


def test_attachments_share_what_may_be_unpacked() -> None:
    attached = [("a.docx", SAMPLES["a.docx"]), ("b.docx", bomb("word/document.xml", SAMPLES["a.docx"]))]
    parsed = read_document("a.eml", "", mail([*attached, ("c.docx", SAMPLES["a.docx"])]), _FEW_UNPACKED)[1]
    assert "Attachment: a.docx" in parsed.text
    assert parsed.text.count("it unpacks to more than 1 MiB") == 2


def test_a_note_follows_its_first_reference_only() -> None:
    _, make = pathological_files()["references to one note"]
    assert read_document("a.docx", "", make(), ParsingLimits())[1].text == "\n\n".join(["note"] * 3_000)


@given(st.integers(1, 40))
def test_rows_too_deep_keep_their_text_in_the_cell_around_them(depth: int) -> None:
    builder = DocumentBuilder()
    writer = BlockWriter(builder)
    for level in range(depth):
        writer.open_row()
        for cell in ("a", "b"):
            writer.open_cell()
            writer.add(BlockKind.PARAGRAPH, f"{cell}{level}")
    for _ in range(depth):
        writer.close_row()
    parsed = builder.build()
    assert [block.kind for block in parsed.blocks] == [BlockKind.TABLE_ROW]
    assert parsed.text.replace("|", " ").split() == [f"{cell}{level}" for level in range(depth) for cell in "ab"]


_MARKS = st.text("\u0301\u0316\u0345\u05b0\u3099", max_size=200)


@given(_MARKS)
def test_a_text_stays_in_normal_form_and_loses_no_mark(marks: str) -> None:
    text = normalize("a" + marks)
    assert unicodedata.is_normalized("NFC", text)
    bare = unicodedata.normalize("NFD", text.replace("\u034f", ""))
    assert sorted(bare) == sorted(unicodedata.normalize("NFD", "a" + marks))
    if len(marks) <= 29:
        assert text == unicodedata.normalize("NFC", "a" + marks)


_HTML = st.lists(
    st.sampled_from(("<p>", "</p>", "<!--", "-->", "a", "<b x='1'>", "<", ">", "<![CDATA[", "]]>", "<![if a]>", "é ")),
    max_size=30,
).map("".join)


@given(_HTML)
def test_markup_that_never_ends_is_text_and_what_ends_stays_markup(source: str) -> None:
    ended = source + "--><![if a]]]><p>"
    try:
        whole = read_document("a.html", "", ("<p>start</p>" + ended + "end").encode(), ParsingLimits())[1].text
        opened = read_document("a.html", "", ("<p>start</p>" + ended + "end<!--<a ").encode(), ParsingLimits())[1].text
    except DocumentRejected:
        return
    assert opened == whole + "<!--<a"
