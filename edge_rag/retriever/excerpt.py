"""What encoders read of a long question; pure.

An encoder's time grows with the length of its text, and one vector of a long text says little about any part of it. Of
a question longer than ``QUESTION_TOKENS``, encoders read the pieces that carry it: those with the words that are rarest
in the collection, where a piece with a question mark, the first and the last one count more. Pieces are chosen greedily
by the weight of the words that those chosen before do not have (maximal coverage; Nemhauser, Wolsey and Fisher, 1978).
The generator reads the whole question.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from edge_rag.core.text import sentence_spans

QUESTION_TOKENS: Final = 128
"""Most tokens of a question that encoders read."""

_MAX_CHARACTERS: Final = 16_384
"""Of a longer question only so many characters are considered, half from its beginning and half from its end."""

_PIECE_CHARACTERS: Final = 160
_ASKING: Final = 2.0
_AT_AN_END: Final = 1.5
_WORD = re.compile(r"[^\W_]+")
_QUESTION_MARKS = re.compile(r"[?？؟;]\s*$")


def excerpt(
    question: str, weights: Mapping[str, float], count_tokens: Callable[[str], int], most: int = QUESTION_TOKENS
) -> str:
    """Returns the pieces of a question that carry it, in their order; the question itself if it is short.

    Args:
        question: Any text.
        weights: Inverse document frequency of the words that count, lower case.
        count_tokens: Counts the tokens of a text.
        most: Most tokens to return.
    """
    if len(question) <= most // 4 or count_tokens(question) <= most:
        return question
    if len(question) > _MAX_CHARACTERS:
        question = question[: _MAX_CHARACTERS // 2] + "\n" + question[-_MAX_CHARACTERS // 2 :]
    pieces = list(_pieces(question))
    words = [{word for word in _WORD.findall(piece.lower()) if word in weights} for piece in pieces]
    factors = [_factor(piece, index in (0, len(pieces) - 1)) for index, piece in enumerate(pieces)]
    chosen: set[int] = set()
    covered: set[str] = set()
    room = most
    left = set(range(len(pieces)))

    def gain(index: int) -> tuple[float, float, int]:
        new = sum(weights[word] for word in words[index] - covered)
        return factors[index] * new, factors[index], -index

    while left and room > 0:
        best = max(left, key=gain)
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
