"""Chunks are exact, ordered, complete and small enough, whatever the document."""

from dataclasses import replace
from typing import SupportsIndex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_rag.core.documents.document import Block, BlockKind, Chunk, ParsedDocument
from edge_rag.ingest.chunking import ChunkLimits, chunk_document, index_text
from edge_rag.ingest.parsing.document_builder import DocumentBuilder


def count_words(text: str) -> int:
    return len(text.split())


def chunk(document: ParsedDocument, target: int = 20, context: int = 10) -> tuple[Chunk, ...]:
    return chunk_document(document, ChunkLimits(target, context), count_words)


_SENTENCE = st.lists(st.text("abcdeéß漢.,", min_size=1, max_size=8), min_size=1, max_size=30).map(" ".join)
_PARAGRAPH = st.lists(_SENTENCE, min_size=1, max_size=6).map(lambda parts: ". A".join(parts) + ".")
_BLOCK = st.tuples(st.sampled_from(BlockKind), _PARAGRAPH, st.integers(1, 4), st.one_of(st.none(), st.integers(1, 9)))


@st.composite
def documents(draw: st.DrawFn) -> ParsedDocument:
    builder = DocumentBuilder()
    for kind, text, level, page in draw(st.lists(_BLOCK, max_size=12)):
        builder.add(kind, text, level if kind is BlockKind.HEADING else 0, page)
    return builder.build()


@settings(deadline=None)
@given(documents(), st.integers(1, 40))
def test_chunks_are_exact_ranges_in_order_that_cover_everything_but_headings(
    document: ParsedDocument, target: int
) -> None:
    chunks = chunk(document, target)

    assert [piece.ordinal for piece in chunks] == list(range(len(chunks)))
    reached = 0
    covered: set[int] = set()
    for piece in chunks:
        assert reached <= piece.start < piece.end <= len(document.text)
        assert piece.text == document.text[piece.start : piece.end]
        assert piece.text == piece.text.strip() != ""
        reached = piece.end
        covered.update(range(piece.start, piece.end))
    for block in document.blocks:
        if block.kind is not BlockKind.HEADING:
            missed = [at for at in range(block.start, block.end) if at not in covered]
            assert all(document.text[at].isspace() for at in missed)


@settings(deadline=None)
@given(documents(), st.integers(1, 40))
def test_no_chunk_exceeds_the_target_unless_it_is_a_single_character(document: ParsedDocument, target: int) -> None:
    for piece in chunk(document, target):
        assert count_words(piece.text) <= target or len(piece.text) == 1


@settings(deadline=None)
@given(documents())
def test_a_chunk_never_crosses_a_heading(document: ParsedDocument) -> None:
    headings = [block for block in document.blocks if block.kind is BlockKind.HEADING]
    for piece in chunk(document, 1000):
        crossed = [block for block in headings if piece.start < block.end and block.start < piece.end]
        assert all((piece.start, piece.end) == (block.start, block.end) for block in crossed)


@settings(deadline=None)
@given(documents(), st.integers(0, 30))
def test_the_context_stays_within_its_share_and_keeps_the_innermost_headings(
    document: ParsedDocument, budget: int
) -> None:
    for whole, cut in zip(chunk(document, 20, 10_000), chunk(document, 20, budget), strict=True):
        assert count_words("\n".join(cut.context)) <= budget
        assert cut.context == whole.context[len(whole.context) - len(cut.context) :]


def test_headings_become_the_context_of_what_is_below_them() -> None:
    builder = DocumentBuilder()
    builder.add(BlockKind.HEADING, "Manual", 1)
    builder.add(BlockKind.HEADING, "Bearings", 2)
    builder.add(BlockKind.PARAGRAPH, "Grease them.")
    builder.add(BlockKind.HEADING, "Seals", 2)
    builder.add(BlockKind.PARAGRAPH, "Check them.")
    builder.add(BlockKind.HEADING, "Annex", 1)
    builder.add(BlockKind.PARAGRAPH, "Drawings.")

    assert [(piece.context, piece.text) for piece in chunk(builder.build())] == [
        (("Manual", "Bearings"), "Grease them."),
        (("Manual", "Seals"), "Check them."),
        (("Annex",), "Drawings."),
    ]


def test_a_heading_with_nothing_below_it_can_still_be_found() -> None:
    builder = DocumentBuilder()
    builder.add(BlockKind.HEADING, "Manual", 1)
    builder.add(BlockKind.HEADING, "Pump must never run dry", 2)
    builder.add(BlockKind.HEADING, "Valve opens to the left", 2)

    assert [(piece.context, piece.text) for piece in chunk(builder.build())] == [
        (("Manual",), "Pump must never run dry"),
        (("Manual",), "Valve opens to the left"),
    ]


def test_a_long_paragraph_is_cut_at_sentences_into_even_parts() -> None:
    builder = DocumentBuilder()
    builder.add(BlockKind.PARAGRAPH, " ".join(f"Sentence number {at} has six words." for at in range(9)))

    chunks = chunk(builder.build(), target=45)

    assert [count_words(piece.text) for piece in chunks] == [30, 24]
    assert all(piece.text.endswith("words.") for piece in chunks)


def test_short_blocks_share_a_chunk_and_it_starts_on_the_page_of_the_first() -> None:
    builder = DocumentBuilder()
    builder.add(BlockKind.PARAGRAPH, "One two.", page=3)
    builder.add(BlockKind.PARAGRAPH, "Three four.", page=4)

    (piece,) = chunk(builder.build("", 9))

    assert (piece.text, piece.page) == ("One two.\n\nThree four.", 3)


def test_a_huge_word_is_cut_even_where_the_tokenizer_takes_it_for_one_token() -> None:
    text = "x" * 100_000
    document = ParsedDocument("", text, (Block(BlockKind.PARAGRAPH, 0, len(text)),))

    chunks = chunk(document, target=20)

    assert "".join(piece.text for piece in chunks) == text
    assert max(len(piece.text) for piece in chunks) <= 16 * 21


class Read(str):
    """Text that counts the characters that are taken out of it."""

    taken = 0

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        found = super().__getitem__(key)
        Read.taken += len(found)
        return found


@pytest.mark.parametrize("piece", ["a", "a. ", "\u4e2d", "valve ", "a" * 900 + " "])
def test_a_sentence_of_any_length_is_cut_in_time_proportional_to_its_length(piece: str) -> None:
    """A document of one letter takes as long to cut as one of words, however long it is."""
    parsed = DocumentBuilder()
    parsed.add(BlockKind.PARAGRAPH, (piece * 400_000)[:400_000])
    document = parsed.build()
    Read.taken = 0

    chunks = chunk(replace(document, text=Read(document.text)), target=120)

    assert len(chunks) > 100
    assert Read.taken < 40 * len(document.text)


def test_what_is_embedded_has_the_headings_above_the_text() -> None:
    assert index_text(("Manual", "Bearings"), "Grease them.") == "Manual\nBearings\nGrease them."


def test_a_heading_longer_than_any_chunk_still_counts_in_full_against_its_share() -> None:
    builder = DocumentBuilder()
    builder.add(BlockKind.HEADING, "a " * 170, 1)
    builder.add(BlockKind.PARAGRAPH, "Grease them.")

    assert [piece.context for piece in chunk(builder.build(), target=20, context=21)] == [()]


def test_no_chunk_ends_with_a_term_a_table_header_or_an_announcement() -> None:
    builder = DocumentBuilder()
    builder.add(BlockKind.PARAGRAPH, "The pump runs all day long and stops at night.")
    builder.add(BlockKind.LIST_ITEM, "NIGHT time")
    builder.add(BlockKind.LIST_ITEM, "When it stops, which is never before ten.")
    builder.add(BlockKind.PARAGRAPH, "Its lights mean the following, from left to right:")
    builder.add(BlockKind.TABLE_ROW, "Light | Meaning")
    builder.add(BlockKind.TABLE_ROW, "red | It is too hot to run.")
    for target in range(22, 34):
        chunks = [each.text for each in chunk(builder.build(), target)]
        assert not [each for each in chunks if each.endswith(("NIGHT time", "right:", "Meaning"))], target


def test_lines_that_all_look_like_terms_are_chunks_all_the_same() -> None:
    builder = DocumentBuilder()
    for number in range(8):
        builder.add(BlockKind.PARAGRAPH, f"part {number}:")
    assert "".join(each.text for each in chunk(builder.build(), 4)).count("part") == 8
