"""Sentence boundaries, and English function words.

The boundaries are rule-based: a boundary follows sentence-final punctuation before white space and a character that can
start a sentence, unless the word before it is a common abbreviation or a single initial. Line breaks separate table
rows, list items and headings, so every line break is a boundary too. A quotation starts and ends at sentence
boundaries.
"""

from __future__ import annotations

import re
from typing import Final

_LINE = re.compile(r"[^\n]+")
_BOUNDARY = re.compile(r"""[.!?…]["'”’)\]]*(?=\s+["'“‘(\[]?[^\W_a-z])""")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:e\.g|i\.e|etc|vs|v|cf|c|ca|al|viz|approx|incl|p|pp|Dr|Mr|Mrs|Ms|Prof|St|Mt|Sr|Jr|Gen|Col|Lt|Maj|Capt"
    r"|Sgt|Adm|Gov|Sen|Rep|No|Nos|Fig|Figs"
    r"|Tab|Sec|Ch|Vol|Eq|Inc|Ltd|Co|Corp|Rev|ed|eds|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sep|Sept|Oct|Nov|Dec"
    r"|(?:[A-Z]\.)*[A-Z])\.$"
)

_LONGEST_ABBREVIATION = 16
"""Characters searched before a full stop; bounds the cost for text that consists of abbreviations."""


def sentence_spans(text: str) -> tuple[tuple[int, int], ...]:
    """Splits a text into sentences.

    Args:
        text: Any text.

    Returns:
        (start, end) character ranges in order, without surrounding white space, none empty; together they cover every
        character of the text that is not white space.
    """
    spans: list[tuple[int, int]] = []
    for line in _LINE.finditer(text):
        start = line.start()
        for boundary in _BOUNDARY.finditer(text, line.start(), line.end()):
            before = max(start, boundary.start() - _LONGEST_ABBREVIATION)
            if not _ABBREVIATION.search(text[before : boundary.start() + 1]):
                _append_trimmed(spans, text, start, boundary.end())
                start = boundary.end()
        _append_trimmed(spans, text, start, line.end())
    return tuple(spans)


def _append_trimmed(spans: list[tuple[int, int]], text: str, start: int, end: int) -> None:
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    if start < end:
        spans.append((start, end))


_WORDS = """
a about above after again all also am an and any are as at be because been before being below between both but by can
could d did do does doing down during each few for from further had has have having he her here hers herself him himself
his how i if in into is it its itself just ll m me more most my myself no nor not now of off on once only or other our
ours ourselves out over own please re s same she should so some such t tell than that the their theirs them themselves
then there these they this those through to too under until up ve very was we were what when where which while who whom
whose why will with would you your yours yourself yourselves
"""

FUNCTION_WORDS: Final = frozenset(_WORDS.split())
"""English function words, lower case; contractions by their parts."""
