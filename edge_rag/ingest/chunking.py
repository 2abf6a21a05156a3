"""Cuts a document into passage-sized chunks along its structure; pure.

Sections are cut apart at headings. Inside a section, whole blocks are packed together; a block that is too long is cut
at sentences, a sentence that is too long between words, a word that is too long anywhere. A section that needs n chunks
is shared out evenly among them, so that the last one is not left with a scrap.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from edge_rag.core.documents.document import Block, BlockKind, Chunk, ParsedDocument
from edge_rag.core.text import sentence_spans

TokenCounter = Callable[[str], int]
"""Number of tokens of a text."""

_LAST_SPACE = re.compile(r"(.*\S)\s", re.DOTALL)
_NOT_SPACE = re.compile(r"\S")
_CHARACTERS_A_TOKEN = 16

SPECIAL_TOKENS: Final = 2
"""Tokens that an embedder puts around a text."""


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """How large chunks are, in tokens of the embedder's vocabulary.

    Attributes:
        target: What a chunk may reach, at least 1; only a single character can be more. Sixteen characters count as
            one token at least, because to some tokenizers a word of any length is one unknown token.
        context: What the headings above a chunk may add; the outermost are left off first.
    """

    target: int
    context: int


def index_text(context: Sequence[str], text: str) -> str:
    """What is embedded for a chunk: the headings above it, outermost first, then its text."""
    return "\n".join((*context, text))


@dataclass(frozen=True, slots=True)
class _Piece:
    """A range of the stored text that is not cut any further."""

    start: int
    end: int
    page: int | None
    tokens: int


def chunk_document(document: ParsedDocument, limits: ChunkLimits, count_tokens: TokenCounter) -> tuple[Chunk, ...]:
    """Cuts a document into chunks.

    Args:
        document: The document.
        limits: How large chunks are.
        count_tokens: Counts tokens, with or without special ones; a part must not have more than the whole.

    Returns:
        In order, not overlapping, none empty; together they hold every character of every block that is no heading, but
        for white space. A heading with nothing below it is a chunk itself, so that it can be found.
    """
    size = _bounded(count_tokens, max(limits.target, limits.context))
    chunks: list[Chunk] = []
    for context, blocks in _sections(document, limits, size):
        pieces = [piece for block in blocks for piece in _pieces(document.text, block, limits.target, size)]
        for first, last in _pack(document.text, pieces, limits.target, size):
            start, end = pieces[first].start, pieces[last].end
            chunks.append(Chunk(len(chunks), start, end, pieces[first].page, context, document.text[start:end]))
    return tuple(chunks)


def _bounded(count_tokens: TokenCounter, largest: int) -> TokenCounter:
    """Counts without special tokens, and by length alone what is too long for any chunk.

    So a huge block is not tokenized again and again while it is cut.
    """
    special = count_tokens("")

    def size(text: str) -> int:
        least = len(text) // _CHARACTERS_A_TOKEN
        return least if least > largest else max(least, count_tokens(text) - special)

    return size


def _sections(
    document: ParsedDocument, limits: ChunkLimits, count_tokens: TokenCounter
) -> Iterator[tuple[tuple[str, ...], list[Block]]]:
    """Yields the headings above a run of blocks, and the blocks."""
    path: list[Block] = []
    body: list[Block] = []

    def headings(blocks: Sequence[Block]) -> tuple[str, ...]:
        context = tuple(document.text[block.start : block.end] for block in blocks)
        while context and count_tokens("\n".join(context)) > limits.context:
            context = context[1:]
        return context

    childless: Block | None = None
    for block in document.blocks:
        if block.kind is not BlockKind.HEADING:
            body.append(block)
            childless = None
            continue
        if body:
            yield headings(path), body
            body = []
        if childless is not None and childless.level >= block.level:
            yield headings(path[:-1]), [childless]
        while path and path[-1].level >= block.level:
            path.pop()
        path.append(block)
        childless = block
    if body:
        yield headings(path), body
    if childless is not None:
        yield headings(path[:-1]), [childless]


def _pieces(text: str, block: Block, target: int, count_tokens: TokenCounter) -> Iterator[_Piece]:
    """Cuts a block as finely as it needs to be, and no finer."""
    tokens = count_tokens(text[block.start : block.end])
    if tokens <= target:
        yield _Piece(block.start, block.end, block.page, tokens)
        return
    for start, end in sentence_spans(text[block.start : block.end]):
        sentence = _Piece(block.start + start, block.start + end, block.page, 0)
        tokens = count_tokens(text[sentence.start : sentence.end])
        if tokens <= target:
            yield _Piece(sentence.start, sentence.end, block.page, tokens)
        else:
            yield from _words(text, sentence, target, count_tokens)


def _words(text: str, sentence: _Piece, target: int, count_tokens: TokenCounter) -> Iterator[_Piece]:
    """Cuts a sentence into runs of words that fit, and a word that does not into runs of characters."""
    start = sentence.start
    while start < sentence.end:
        end = _longest(text, start, sentence.end, target, count_tokens)
        if end < sentence.end and not text[end].isspace():
            whole_words = _LAST_SPACE.match(text, start, end)
            end = whole_words.end(1) if whole_words else end
        while text[end - 1].isspace():
            end -= 1
        yield _Piece(start, end, sentence.page, count_tokens(text[start:end]))
        following = _NOT_SPACE.search(text, end, sentence.end)
        start = following.start() if following else sentence.end


def _longest(text: str, start: int, end: int, target: int, count_tokens: TokenCounter) -> int:
    """Furthest position up to ``end`` so that the characters from ``start`` fit; at least one character."""
    if count_tokens(text[start:end]) <= target:
        return end
    fits, too_far = start + 1, min(end, start + _CHARACTERS_A_TOKEN * (target + 1))
    while too_far - fits > 1:
        middle = (fits + too_far) // 2
        if count_tokens(text[start:middle]) <= target:
            fits = middle
        else:
            too_far = middle
    return fits


def _pack(text: str, pieces: Sequence[_Piece], target: int, count_tokens: TokenCounter) -> Iterator[tuple[int, int]]:
    """Yields (first, last) positions of the pieces of each chunk.

    A chunk takes the next piece if it then holds at most ``target`` tokens and comes no further from its even share of
    what is left.
    """
    left = sum(piece.tokens for piece in pieces)
    first = 0
    while first < len(pieces):
        share = left / max(1, ceil(left / target))
        held = pieces[first].tokens
        last = first
        while last + 1 < len(pieces):
            grown = held + pieces[last + 1].tokens
            if grown > target or abs(grown - share) > abs(share - held):
                break
            held, last = grown, last + 1
        while last > first and count_tokens(text[pieces[first].start : pieces[last].end]) > target:
            held, last = held - pieces[last].tokens, last - 1
        yield first, last
        left -= held
        first = last + 1
