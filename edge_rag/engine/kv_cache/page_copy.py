"""Passages whose keys and values were computed in another text: where they stand there, and where here.

What is computed alone has seen nothing of what stands before it here, so what follows from it is an approximation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from edge_rag.engine.kv_cache.prefix_cache import PageId


@dataclass(frozen=True, slots=True)
class PassageSpan:
    """A part of a prompt that stands, token by token, in another text as well.

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


def between(first: int, end: int, copies: Sequence[KvCopy]) -> Iterator[tuple[int, int]]:
    """Yields what is computed of a stretch of a sequence, as first and end positions; none of it is empty.

    Args:
        first: Position of the stretch's first token.
        end: Position after its last.
        loans: Those inside it, in order.
    """
    for copy in copies:
        if first < copy.start:
            yield first, copy.start
        first = copy.end
    if first < end:
        yield first, end


def stretch(first: int, count: int, copies: Sequence[KvCopy]) -> tuple[KvCopy, ...]:
    """Returns the loans that lie before the last of the next tokens to compute.

    Args:
        first: Position of the first of them, or of a loan before it.
        count: How many are computed.
        loans: All that are ahead, in order.
    """
    taken = 0
    for copy in copies:
        if count <= copy.start - first:
            break
        count -= copy.start - first
        first = copy.end
        taken += 1
    return tuple(copies[:taken])


def within(first: int, end: int, copies: Sequence[KvCopy]) -> int:
    """Returns how many tokens can be computed so that neither they nor the loans before them go beyond a position.

    Args:
        first: Position of the first token that is not there yet.
        end: The position.
        loans: All that are ahead, in order.
    """
    count = 0
    for copy in copies:
        if copy.end >= end:
            return count + max(0, min(end, copy.start) - first)
        count += copy.start - first
        first = copy.end
    return count + max(0, end - first)
