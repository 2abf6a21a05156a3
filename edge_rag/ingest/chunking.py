"""Splits a document into passage-sized chunks along its structure; pure.

Chunks never cross a heading. Within a section whole blocks are packed together; a block that is too long is split
between sentences, a sentence between words, a word between characters. A section that needs n chunks is divided evenly
among them, so that the last one is not much smaller than the others. No chunk ends with what only says what follows it
if it can end before it: a term without its text, the header of a table without a row, a sentence with a colon.
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
"""Returns the number of tokens of a text."""

_LAST_SPACE = re.compile(r"(.*\S)\s", re.DOTALL)
_NOT_SPACE = re.compile(r"\S")
_CHARACTERS_A_TOKEN = 16
_GUESS_CHARACTERS = 16
_DIVIDER = " | "
_COLONS = (":", "\uff1a")

LONGEST_TERM: Final = 120
"""Most characters of a line that is a term and stays with the text that defines it."""

SPECIAL_TOKENS: Final = 2
"""Special tokens that an embedder adds to a text."""


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """Sizes of chunks, in tokens of the embedder's vocabulary.

    Attributes:
        target: Most tokens of a chunk, at count 1; only a single character may exceed it. Sixteen characters count as
            at count one token, because to some tokenizers a word of any length is one unknown token.
        context: Most tokens of the headings above a chunk; the outermost ones are left out first.
    """

    target: int
    context: int


def index_text(context: Sequence[str], text: str) -> str:
    return "\n".join((*context, text))


@dataclass(frozen=True, slots=True)
class _Span:
    """A range of the stored text that is not split further."""

    start: int
    end: int
    page: int | None
    tokens: int


def chunk_document(document: ParsedDocument, limits: ChunkLimits, count_tokens: TokenCounter) -> tuple[Chunk, ...]:
    """Splits a document into chunks.

    Args:
        count_tokens: Counts tokens, with or without special ones; a part must not have more tokens than the whole.

    Returns:
        Chunks in order, not overlapping, none empty. Together they hold every character of every block except headings
        and white space. A heading without a block below it is a chunk itself, so that it can be found.
    """
    size = _bounded(count_tokens, max(limits.target, limits.context))
    chunks: list[Chunk] = []
    for context, blocks in _sections(document, limits, size):
        spans = [span for block in blocks for span in _spans(document.text, block, limits.target, size)]
        for first, last in _pack(document.text, spans, limits.target, size):
            start, end = spans[first].start, spans[last].end
            lines = document.lines.part(chunks[-1].end if chunks else 0, end)
            chunks.append(Chunk(len(chunks), start, end, spans[first].page, context, document.text[start:end], lines))
    return tuple(chunks)


def _bounded(count_tokens: TokenCounter, largest: int) -> TokenCounter:
    """Counts tokens without special ones, and only by length if a text is too long for any chunk.

    A huge block is then not tokenized again and again while it is split.
    """
    special = count_tokens("")

    def size(text: str) -> int:
        count = len(text) // _CHARACTERS_A_TOKEN
        return count if count > largest else max(count, count_tokens(text) - special)

    return size


def _sections(
    document: ParsedDocument, limits: ChunkLimits, count_tokens: TokenCounter
) -> Iterator[tuple[tuple[str, ...], list[Block]]]:
    """Yields consecutive blocks with the headings above them."""
    path: list[Block] = []
    body: list[Block] = []

    def headings(blocks: Sequence[Block]) -> tuple[str, ...]:
        context = tuple(document.text[block.start : block.end] for block in blocks)
        while context and count_tokens("\n".join(context)) > limits.context:
            context = context[1:]
        return context

    without_children: Block | None = None
    for block in document.blocks:
        if block.kind is not BlockKind.HEADING:
            body.append(block)
            without_children = None
            continue
        if body:
            yield headings(path), body
            body = []
        if without_children is not None and without_children.level >= block.level:
            yield headings(path[:-1]), [without_children]
        while path and path[-1].level >= block.level:
            path.pop()
        path.append(block)
        without_children = block
    if body:
        yield headings(path), body
    if without_children is not None:
        yield headings(path[:-1]), [without_children]


def _spans(text: str, block: Block, target: int, count_tokens: TokenCounter) -> Iterator[_Span]:
    """Splits a block as far as necessary."""
    tokens = count_tokens(text[block.start : block.end])
    if tokens <= target:
        yield _Span(block.start, block.end, block.page, tokens)
        return
    for start, end in sentence_spans(text[block.start : block.end]):
        sentence = _Span(block.start + start, block.start + end, block.page, 0)
        tokens = count_tokens(text[sentence.start : sentence.end])
        if tokens <= target:
            yield _Span(sentence.start, sentence.end, block.page, tokens)
        else:
            yield from _words(text, sentence, target, count_tokens)


def _words(text: str, sentence: _Span, target: int, count_tokens: TokenCounter) -> Iterator[_Span]:
    """Splits a sentence into runs of words that fit, and a word that does not fit into runs of characters."""
    start, length = sentence.start, 0
    while start < sentence.end:
        end = _longest(text, start, sentence.end, target, count_tokens, start + length)
        length = end - start
        if end < sentence.end and not text[end].isspace():
            whole_words = _LAST_SPACE.match(text, start, end)
            end = whole_words.end(1) if whole_words else end
        while text[end - 1].isspace():
            end -= 1
        yield _Span(start, end, sentence.page, count_tokens(text[start:end]))
        following = _NOT_SPACE.search(text, end, sentence.end)
        start = following.start() if following else sentence.end


def _longest(text: str, start: int, end: int, target: int, count_tokens: TokenCounter, guess: int) -> int:
    """Returns the last position up to ``end`` at which the characters from ``start`` fit; at count one character.

    Text that is too long for any chunk is not read, and a good guess spares most of the search, so that the time to
    split a sentence is proportional to its length.
    """

    def fits(position: int) -> bool:
        return count_tokens(text[start:position]) <= target

    longest = start + _CHARACTERS_A_TOKEN * (target + 1)
    if end <= longest and fits(end):
        return end
    low, high, step = start + 1, min(end, longest), _GUESS_CHARACTERS
    if low < guess < high and fits(guess):
        low = guess
        while low + step < high and fits(low + step):
            low, step = low + step, 2 * step
        high = min(high, low + step)
    elif low < guess < high:
        high = guess
        while high - step > low and not fits(high - step):
            high, step = high - step, 2 * step
        low = max(low, high - step)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _pack(text: str, spans: Sequence[_Span], target: int, count_tokens: TokenCounter) -> Iterator[tuple[int, int]]:
    """Yields the first and last positions of the spans of each chunk.

    A chunk takes the next span if it then has at most ``target`` tokens and stays closest to its even share of the
    rest.
    """
    left = sum(span.tokens for span in spans)
    first = 0
    while first < len(spans):
        share = left / max(1, ceil(left / target))
        sizes = spans[first].tokens
        last = first
        while last + 1 < len(spans):
            grown = sizes + spans[last + 1].tokens
            if grown > target or abs(grown - share) > abs(share - sizes):
                break
            sizes, last = grown, last + 1
        while last > first and count_tokens(text[spans[first].start : spans[last].end]) > target:
            sizes, last = sizes - spans[last].tokens, last - 1
        whole = last
        while whole > first and _leads(text, spans, whole):
            whole -= 1
        if whole > first or not _leads(text, spans, first):
            sizes, last = sizes - sum(each.tokens for each in spans[whole + 1 : last + 1]), whole
        yield first, last
        left -= sizes
        first = last + 1


def _leads(text: str, spans: Sequence[_Span], number: int) -> bool:
    if number + 1 == len(spans):
        return False
    before, here, after = (
        text[spans[each].start : spans[each].end] if each >= 0 else "" for each in (number - 1, number, number + 1)
    )
    if _DIVIDER in here:
        return _DIVIDER in after and _DIVIDER not in before
    open_line = here[-1].isalnum() and len(here) <= LONGEST_TERM and "\n" not in here
    return here.endswith(_COLONS) or (open_line and not after[-1].isalnum() and _DIVIDER not in after)
