"""Each word of a source is told to be from the line that it is on."""

import json
import re
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_rag.core.documents.document import ParsedDocument
from edge_rag.ingest.chunking import ChunkLimits, chunk_document
from edge_rag.ingest.parsing.document_format import Format, ParsingLimits
from edge_rag.ingest.parsing.parser import read_document
from edge_rag.ingest.parsing.sandbox.messages import decode_answer, encode_parsed
from edge_rag.ingest.parsing.text.html import HTML
from edge_rag.ingest.parsing.text.markdown import MARKDOWN
from edge_rag.ingest.parsing.text.plain import CSV, PLAIN
from tests.support.examples import examples

LIMITS = ParsingLimits()
_WORD = re.compile(r"w\d+")
_BREAK = re.compile("\r\n|[\r\n]")


def parsed(format_: Format, source: str | bytes) -> ParsedDocument:
    content = source.encode() if isinstance(source, str) else source
    return read_document("", format_.media_type, content, LIMITS)[1]


def lines_of(document: ParsedDocument) -> dict[str, int | None]:
    return {found.group(): document.lines.line_at(found.start()) for found in _WORD.finditer(document.text)}


def expected(source: str) -> dict[str, int]:
    return {word: line for line, text in enumerate(_BREAK.split(source), 1) for word in _WORD.findall(text)}


WORDS = st.lists(st.just("w"), min_size=1, max_size=9).map(" ".join)
PLAIN_LINES = st.one_of(
    WORDS,
    st.sampled_from(
        ["", "  ", "\t", "- w", "  w", "* w w", "=====", "w  w", "1. w", "w: 2", "w\u2028w", "字", "字字 w"]
    ),
)
MARKUP = "# w|- w|  - w w|> w|    w|w  |*w|w* w|[w](u|`w|w` w|---|===|w \\|![w](x) w|&amp; w|w <b>w</b>|\\* w|```|"
MARKDOWN_LINES = st.one_of(WORDS, st.sampled_from([*MARKUP.split("|"), "| w | w |", "|---|---|"]))
BREAKS = st.sampled_from(["\n", "\r\n"])


def numbered(lines: list[str], break_: str) -> str:
    numbers = count()
    return re.sub("w", lambda _: f"w{next(numbers)}", break_.join(lines))


@given(st.lists(PLAIN_LINES, max_size=40), st.sampled_from(["\n", "\r\n", "\r"]))
@settings(max_examples=examples(150), deadline=None)
def test_words_of_plain_text_have_the_line_that_they_are_on(lines: list[str], break_: str) -> None:
    source = numbered(["w", *lines], break_)
    assert lines_of(parsed(PLAIN, "\ufeff" + source)) == expected(source)


@given(st.lists(MARKDOWN_LINES, max_size=30), BREAKS, st.booleans())
@settings(max_examples=examples(150), deadline=None)
def test_words_of_markdown_have_the_line_that_they_are_on(lines: list[str], break_: str, front_matter: bool) -> None:
    matter = break_.join(["---", "title: A pump", "tags: [a, b]", "---", ""]) if front_matter else ""
    source = matter + numbered(["w", "", *lines], break_)
    right = expected(source)
    found = lines_of(parsed(MARKDOWN, source))
    assert {word: line for word, line in found.items() if line is not None} == {
        word: right[word] for word, line in found.items() if line is not None
    }
    assert "<b>" in source or None not in found.values()


def test_rows_of_a_table_have_the_line_on_which_they_begin() -> None:
    document = parsed(CSV, 'w0,w1\r\nw2,1\r\n"w3\r\nw4",2\r\n\r\nw5,3\r\n')
    assert lines_of(document) == {"w0": 1, "w1": 1, "w2": 2, "w3": 3, "w4": 3, "w5": 6} | dict.fromkeys(
        ("w0", "w1"), lines_of(document)["w0"]
    )


def test_formats_whose_lines_nobody_sees_have_none() -> None:
    assert len(parsed(HTML, "<p>w0</p>\n<p>w1</p>").lines) == 0
    assert lines_of(parsed(MARKDOWN, "w0\n\n<p>w1\nw2</p>\n\nw3"))["w1"] is None


def test_each_chunk_tells_its_lines_and_those_of_the_heading_above_it() -> None:
    source = "# w0\n\nw1 " + "word " * 60 + "\n\n## w2\n\n" + "\n".join(f"w{number}" for number in range(3, 90))
    document = parsed(MARKDOWN, source)
    chunks = chunk_document(document, ChunkLimits(32, 16), lambda text: len(text.split()))
    found: dict[str, int | None] = {}
    reached = 0
    for chunk in chunks:
        told = _WORD.finditer(document.text, reached, chunk.end)
        found |= {word.group(): chunk.lines.line_at(word.start()) for word in told}
        reached = chunk.end
    assert found == expected(source)


@pytest.mark.parametrize("lines", [[10_000, 1], [1, 1, 0, 1], [1], ["1", 1], None, [0, -3]])
def test_lines_that_no_parser_could_have_found_are_not_accepted(lines: Any) -> None:
    answer = json.loads(encode_parsed("text/plain", parsed(PLAIN, "w0\nw1"))[1:]) | {"lines": lines}
    with pytest.raises(ValueError, match=r"line|shape"):
        decode_answer(b"A" + json.dumps(answer).encode(), LIMITS, {"text/plain"})
    sound = encode_parsed("text/plain", parsed(PLAIN, "w0\n\nw1"))
    assert lines_of(decode_answer(sound, LIMITS, {"text/plain"})[1]) == {"w0": 1, "w1": 3}
