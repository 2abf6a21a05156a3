"""The few lengths that texts are filled up to, for processors that want shapes they know beforehand."""

from __future__ import annotations

from typing import Final

LONGEST: Final = 512
"""Longest graph, tokens. Of a text that a model could read more of, no more is read at once."""

_LENGTHS: Final = (32, 64, 128, 256, LONGEST)


def graph_lengths(longest: int) -> tuple[int, ...]:
    """Returns the lengths that a model gets graphs for, tokens, ascending; the last is the longest text it reads.

    Where each length has a graph of its own, it costs the model's weights once more, on the disk and in the processor's
    memory; each text costs what it is filled up by. Questions have 8 to 31 tokens (XQuAD, median 14), chunks at most
    162 with their headings and mostly 60 to 130. Doubling from 32 on, a text is filled up to less than twice its
    length, and there is one length for nearly every question.

    Args:
        longest: Most tokens of a text that the model reads.
    """
    last = min(longest, LONGEST)
    return (*(length for length in _LENGTHS if length < last), last)
