"""Where a prompt's passages stand in it, and the text in which each of them is computed alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from edge_rag.engine.kv_cache.page_copy import PassageSpan


def passage_spans(
    prompt: Sequence[int],
    first: int,
    laid_out: Sequence[Sequence[int]],
    alone: Sequence[Sequence[int]],
    page_tokens: int,
    recompute: int,
) -> tuple[PassageSpan, ...]:
    """Finds the parts of a prompt that may be copied.

    A passage's text alone is the prompt's beginning, the passage, and its last token again until a page and one token
    more are full. Its first tokens in the prompt, and its number where it has another one alone, are not part of the
    span; the first passage sees the same alone and here, so that none of its tokens has to be computed twice.

    Args:
        prompt: The prompt.
        first: Position of the first passage's first token.
        laid_out: Tokens of each passage as it stands in the prompt.
        alone: Tokens of each passage as it stands in the text in which it is computed alone.
        page_tokens: Tokens a page holds.
        recompute: Tokens of each passage after the first that are computed in the prompt, after those that differ.

    Returns:
        The spans in order; none where the prompt's tokens are not those of its parts in a row.
    """
    ends = [*accumulate(map(len, laid_out), initial=first)]
    if list(prompt[first : ends[-1]]) != [token for tokens in laid_out for token in tokens]:
        return ()
    spans = []
    for start, here, only in zip(ends[:-1], laid_out, alone, strict=True):
        common = _common_end(here, only)
        skipped = 0 if start == first else recompute
        if common > skipped:
            text = (*prompt[:first], *only)
            filled = (*text, *[only[-1]] * (-len(text) % page_tokens + 1))
            begin = start + len(here) - common + skipped
            spans.append(PassageSpan(begin, common - skipped, filled, first + len(only) - common + skipped))
    return tuple(spans)


def _common_end(one: Sequence[int], other: Sequence[int]) -> int:
    """Returns how many tokens the ends of two texts have in common."""
    count = 0
    for left, right in zip(reversed(one), reversed(other), strict=False):
        if left != right:
            break
        count += 1
    return count
