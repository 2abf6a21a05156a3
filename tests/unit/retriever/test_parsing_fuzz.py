"""Whatever bytes come, a parser gives a sound document or a reason."""

from __future__ import annotations

import unicodedata

from fpdf import FPDF
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_rag.core.document import ParsedDocument
from edge_rag.errors import DocumentRejected
from edge_rag.retriever.parsing.limits import ParsingLimits
from edge_rag.retriever.parsing.messages import decode_answer, encode_parsed
from edge_rag.retriever.parsing.reader import read_document

_FRAGMENTS = (
    *(
        "<p>",
        "</p>",
        "<table>",
        "<tr>",
        "<td>",
        "</tr>",
        "</table>",
        "<ul><li>",
        "<pre>",
        "<h2>",
        "</h2>",
        "<br>",
        "<!--",
    ),
    *(
        "-->",
        "<![CDATA[",
        "&#xD800;",
        "&amp",
        "<script>",
        "# ",
        "- ",
        "> ",
        "|",
        "|---|\n",
        "```\n",
        "\n",
        "\n\n",
        "    ",
    ),
    *("---\n", "1. ", "*", "_", "`", "[a](b)", "![", "word ", "e\u0301", "\u2028", "\x0c", "\r", "ß "),
)
_MARKUP = st.lists(st.sampled_from(_FRAGMENTS), max_size=60).map("".join)


def require_sound(parsed: ParsedDocument) -> None:
    assert parsed.text.strip()
    assert unicodedata.is_normalized("NFC", parsed.text)
    assert "\r" not in parsed.text
    assert "\x00" not in parsed.text
    parsed.text.encode()
    reached = 0
    for block in parsed.blocks:
        assert parsed.text[reached : block.start].strip("\n") == ""
        text = parsed.text[block.start : block.end]
        assert text.strip()
        reached = block.end
    assert reached == len(parsed.text)


def try_reading(name: str, content: bytes) -> None:
    try:
        document_format, parsed = read_document(name, "", content, ParsingLimits())
    except DocumentRejected as error:
        assert str(error)
        return
    require_sound(parsed)
    assert decode_answer(encode_parsed(document_format, parsed), ParsingLimits()) == (document_format, parsed)


@settings(deadline=None)
@given(st.sampled_from(["a.md", "a.html", "a.txt"]), st.one_of(_MARKUP, st.text()))
def test_any_text_is_read_or_refused(name: str, text: str) -> None:
    try_reading(name, text.encode("utf-8", "replace"))


@settings(deadline=None)
@given(st.sampled_from(["a.md", "a.html", "a.txt", "a"]), st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(name: str, content: bytes) -> None:
    try_reading(name, content)


def _sample_pdf() -> bytes:
    pdf = FPDF()
    pdf.set_compression(False)
    pdf.add_page()
    pdf.set_font("Helvetica", size=12)
    pdf.multi_cell(0, 6, "Close the valve before the pump is opened. " * 4)
    return bytes(pdf.output())


_PDF = _sample_pdf()


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(_PDF) - 1), st.binary(min_size=1, max_size=8)), min_size=1, max_size=12))
def test_a_mutated_pdf_is_read_or_refused(mutations: list[tuple[int, bytes]]) -> None:
    content = bytearray(_PDF)
    for at, replacement in mutations:
        content[at : at + len(replacement)] = replacement
    try_reading("a.pdf", bytes(content))


@settings(deadline=None)
@given(st.integers(0, len(_PDF)), st.binary(max_size=64))
def test_a_truncated_pdf_is_read_or_refused(length: int, tail: bytes) -> None:
    try_reading("a.pdf", _PDF[:length] + tail)
