"""Passages whose keys and values are copied from another text.

A passage computed on its own has not attended to the tokens before it here, so everything after it is an approximation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from edge_rag.engine.kv_cache.prefix_cache import PageId


@dataclass(frozen=True, slots=True)
class PassageSpan:
    """A part of a prompt that also occurs, token by token, in another text.

    Attributes:
        start: Position of its first token in the prompt.
        length: Tokens, at least 1.
        alone: The other text: the prompt's beginning, the passage, and what fills up its last page.
        offset: Position of its first token there, at most ``start``.
    """

    start: int
    length: int
    alone: tuple[int, ...]
    offset: int

    @property
    def end(self) -> int:
        """Position after its last token in the prompt."""
        return self.start + self.length


@dataclass(frozen=True, slots=True)
class KvCopy:
    """A part of a sequence that is copied instead of computed.

    Attributes:
        start: Position of its first token in the sequence.
        length: Tokens, at least 1.
        pages: Pages of the text it is copied from, in order.
        offset: Position of its first token there, at most ``start``.
    """

    start: int
    length: int
    pages: tuple[PageId, ...]
    offset: int

    @property
    def end(self) -> int:
        """Position after its last token in the sequence."""
        return self.start + self.length


def copied_tokens(copies: Sequence[KvCopy]) -> int:
    """Returns how many tokens the copies hold."""
    # Nearly every sequence of every step has none, and setting up the sum costs more than it.
    return sum([copy.length for copy in copies]) if copies else 0


def computed_ranges(first: int, end: int, copies: Sequence[KvCopy]) -> Iterator[tuple[int, int]]:
    """Yields the computed ranges between two positions of a sequence, as first and end positions; none is empty."""
    for copy in copies:
        if first < copy.start:
            yield first, copy.start
        first = copy.end
    if first < end:
        yield first, end


def next_copies(first: int, count: int, copies: Sequence[KvCopy]) -> tuple[KvCopy, ...]:
    """Returns the copies that come before the last of the next ``count`` computed tokens.

    Args:
        first: Position of the first of these tokens, or of a copy before it.
    """
    count_copies = 0
    for copy in copies:
        if count <= copy.start - first:
            break
        count -= copy.start - first
        first = copy.end
        count_copies += 1
    return tuple(copies[:count_copies])


def tokens_until(first: int, end: int, copies: Sequence[KvCopy]) -> int:
    """Returns how many tokens can be computed before a position, together with the copies between them.

    Args:
        first: Position of the first token that is neither computed nor copied.
    """
    count = 0
    for copy in copies:
        if copy.end >= end:
            return count + max(0, min(end, copy.start) - first)
        count += copy.start - first
        first = copy.end
    return count + max(0, end - first)
