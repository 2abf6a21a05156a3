"""Whatever bytes come, a parser gives a sound document or a reason."""

import io
import os
import time
import unicodedata
import zipfile
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_rag.core.documents.document import ParsedDocument
from edge_rag.errors import DocumentRejected
from edge_rag.ingest.parsing.document_format import ParsingLimits
from edge_rag.ingest.parsing.parser import read_document
from edge_rag.ingest.parsing.sandbox.messages import decode_answer, encode_parsed
from edge_rag.ingest.parsing.sandbox.process import ParserProcess
from tests.unit.ingest.sample_files import SAMPLES, zipped

_FRAGMENTS = (
    "<p>", "</p>", "<table>", "<tr>", "<td>", "</tr>", "</table>", "<ul><li>", "<pre>", "<h2>", "</h2>", "<br>",
    "<!--", "-->", "<![CDATA[", "&#xD800;", "&amp", "<script>", "# ", "- ", "> ", "|", "|---|\n", "```\n", "\n",
    "\n\n", "    ", "---\n", "1. ", "*", "_", "`", "[a](b)", "![", "word ", "e\u0301", "\u2028", "\x0c", "\r", "ß ",
)  # fmt: skip
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
        media_type, parsed = read_document(name, "", content, ParsingLimits())
    except DocumentRejected as error:
        assert str(error)
        return
    require_sound(parsed)
    assert decode_answer(encode_parsed(media_type, parsed), ParsingLimits(), {media_type}) == (media_type, parsed)


@settings(deadline=None)
@given(st.sampled_from(["a.md", "a.html", "a.txt"]), st.one_of(_MARKUP, st.text()))
def test_any_text_is_read_or_refused(name: str, text: str) -> None:
    try_reading(name, text.encode("utf-8", "replace"))


@settings(deadline=None)
@given(st.sampled_from(["a.md", "a.html", "a.txt", "a"]), st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(name: str, content: bytes) -> None:
    try_reading(name, content)


def mutated(content: bytes, random: Random) -> bytes:
    """Cuts, overwrites, repeats or flips bits of a document; of a ZIP file also of what is in its parts."""
    if content.startswith(b"PK") and random.random() < 0.7:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            parts = {name: archive.read(name) for name in archive.namelist()}
        part = random.choice(sorted(parts))
        return zipped({**parts, part: _mutated_bytes(parts[part], random)})
    return _mutated_bytes(content, random)


def _mutated_bytes(content: bytes, random: Random) -> bytes:
    changed = bytearray(content or b"\x00")
    for _ in range(random.choice((1, 1, 2, 5, 30))):
        at = random.randrange(len(changed))
        match random.randrange(5):
            case 0:
                changed[at] ^= 1 << random.randrange(8)
            case 1:
                changed[at : at + random.randrange(40)] = random.randbytes(random.randrange(40))
            case 2:
                changed[at:at] = changed[at : at + random.randrange(400)] * random.randrange(4)
            case 3:
                changed[at:at] = random.choice(
                    (b"<", b"&#0;", b"]]>", b"99999999999", b"-1", b"\xff\xfe", b'"', b"\n\n")
                )
            case _:
                del changed[at : at + random.randrange(400)]
        changed = changed or bytearray(b"\x00")
    return bytes(changed[: random.randrange(len(changed))]) if random.random() < 0.15 else bytes(changed)


def require_outcome(parser: ParserProcess, name: str, content: bytes) -> None:
    """A document or a named reason; only calamine, which is native code, may bring the process down."""
    try:
        require_sound(parser.read(name, "", content)[1])
    except DocumentRejected as error:
        assert str(error)
        assert str(error) != "the parser failed on it" or name == "a.xlsx"


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_a_damaged_document_of_any_format_is_read_or_refused(fuzzed_parser: ParserProcess, name: str) -> None:
    random = Random(name)
    for _ in range(30):
        require_outcome(fuzzed_parser, name, mutated(SAMPLES[name], random))


@pytest.mark.soak
def test_damaged_documents_are_read_or_refused_for_as_long_as_one_likes(fuzzed_parser: ParserProcess) -> None:
    end = time.monotonic() + float(os.environ.get("EDGE_RAG_SOAK_SECONDS", "2"))
    seed = 0
    while time.monotonic() < end:
        random = Random(seed)
        name = random.choice(sorted(SAMPLES))
        require_outcome(fuzzed_parser, name, mutated(SAMPLES[name], random))
        seed += 1


@pytest.fixture(scope="module")
def fuzzed_parser() -> Iterator[ParserProcess]:
    parser = ParserProcess(ParsingLimits(cpu_seconds=10, memory_bytes=500 * 2**20), "none")
    yield parser
    parser.close()
