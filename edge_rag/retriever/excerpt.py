"""The parts of a long question that encoders read, and its words that are searched for; pure.

An encoder's time grows with the length of its text, and one vector of a long text represents no part of it well. Of a
question longer than ``QUESTION_TOKENS``, retriever and reranker read the pieces with the rarest words of the
collection, chosen greedily (maximal coverage; Nemhauser, Wolsey and Fisher, 1978). A piece with a question mark, the
first and the last one have a higher weight. The generator reads the whole question.
docs/internals/retrieval.md has the measurements.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from edge_rag.analysis.terms import terms_of
from edge_rag.core.text import sentence_spans

QUESTION_TOKENS: Final = 96
"""Most tokens of a question that encoders read."""

_MAX_CHARACTERS: Final = 16_384
"""Of a longer question only so many characters are considered, half from its beginning and half from its end."""

_PIECE_CHARACTERS: Final = 160
_ASKING: Final = 3.0
_AT_AN_END: Final = 1.5
_LEAST_GAIN: Final = 0.3
_QUESTION_MARKS = re.compile(r"[?？؟;]\s*$")


def excerpt(
    question: str,
    weigh: Callable[[str], Mapping[str, float]],
    count_tokens: Callable[[str], int],
    most: int = QUESTION_TOKENS,
) -> str:
    """Returns the most important pieces of a question, in their order; the question itself if it is short."""
    if len(question) <= most // 4 or count_tokens(question) <= most:
        return question
    if len(question) > _MAX_CHARACTERS:
        question = question[: _MAX_CHARACTERS // 2] + "\n" + question[-_MAX_CHARACTERS // 2 :]
    weights = weigh(question)
    pieces = list(_pieces(question))
    words = [{term for _, _, term in terms_of(piece) if term in weights} for piece in pieces]
    factors = [_factor(piece, index in (0, len(pieces) - 1)) for index, piece in enumerate(pieces)]
    chosen: set[int] = set()
    covered: set[str] = set()
    room = most
    left = set(range(len(pieces)))

    def gain(index: int) -> tuple[float, float, int]:
        new = sum(weights[word] for word in words[index] - covered)
        return factors[index] * new, factors[index], -index

    least = _LEAST_GAIN * max(gain(index)[0] for index in left)
    while left and room > 0:
        best = max(left, key=gain)
        if chosen and gain(best)[0] < least:
            break
        left.discard(best)
        tokens = count_tokens(pieces[best])
        if tokens <= room or not chosen:
            chosen.add(best)
            covered |= words[best]
            room -= tokens
    return "\n".join(pieces[index] for index in sorted(chosen))


def _factor(piece: str, at_an_end: bool) -> float:
    return (_ASKING if _QUESTION_MARKS.search(piece) else 1.0) * (_AT_AN_END if at_an_end else 1.0)


def _pieces(question: str) -> Iterator[str]:
    """Yields the sentences of a question, cut where they are long; short ones are joined unless one asks."""
    pending = ""
    for start, end in sentence_spans(question):
        sentence = question[start:end]
        joined = f"{pending} {sentence}" if pending else sentence
        if len(joined) <= _PIECE_CHARACTERS // 2 and not _QUESTION_MARKS.search(sentence):
            pending = joined
            continue
        if pending and len(joined) > _PIECE_CHARACTERS:
            yield pending
            joined = sentence
        pending = ""
        yield from _cut(joined)
    if pending:
        yield pending


def _cut(text: str) -> Iterator[str]:
    while len(text) > _PIECE_CHARACTERS:
        space = text.rfind(" ", 1, _PIECE_CHARACTERS + 1)
        end = space if space > 0 else _PIECE_CHARACTERS
        yield text[:end]
        text = text[end:].lstrip()
    if text:
        yield text
