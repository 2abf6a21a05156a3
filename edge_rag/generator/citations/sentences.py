"""Text that a model writes, cut into sentences as it comes; pure.

Sentences end where ``core.sentences`` sees it, which takes the beginning of the next one. ``[n]`` markers are taken out
and kept apart, with the blanks before them. However the text is cut into pieces, the sentences are the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from edge_rag.core.text import sentence_spans

_MARKER: Final = re.compile(r"[ \t]*\[(\d{1,3}(?: ?[,;–-] ?\d{1,3}){0,7})\]")
_UNDECIDED: Final = re.compile(r"[ \t]*(?:\[[\d ,;–-]{0,50})?\Z")
_NUMBER: Final = re.compile(r"\d+")
_ENDED: Final = re.compile(r"""[.!?…]["'”’)\]*_]*\Z""")
_ITEM: Final = re.compile(r"(?:\d{1,2}[.)]|[-*•#]+)\Z")
_PREFIX: Final = re.compile(
    r"(?:(?:\d{1,2}[.)]|[-*•#]+)\s+)?(?:(?:according to|based on|as stated in) [^,.]{1,60},\s+)?", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class WrittenSentence:
    """A sentence that a model wrote.

    Attributes:
        text: Its text, trimmed, without markers; not empty.
        new_line: Whether it begins a line, and is not the first.
        markers: Numbers in the markers inside and right after it.
        whole: Whether it was written to its end.
    """

    text: str
    new_line: bool
    markers: frozenset[int]
    whole: bool = True

    @property
    def claim(self) -> str:
        """What it says: the text without the number or bullet of a list item and without naming its source."""
        return self.text[_PREFIX.match(self.text).end() :]  # type: ignore[union-attr]


class SentenceCutter:
    """Takes a text in pieces and gives its sentences."""

    def __init__(self) -> None:
        self._undecided = ""
        self._open = ""
        self._markers: list[tuple[int, int]] = []
        self._said_any = False

    def feed(self, text: str) -> list[WrittenSentence]:
        """Takes the next piece and returns the sentences that are certain now."""
        self._take(text)
        done = _items_joined(self._open, sentence_spans(self._open))[:-1]
        return self._let_go(done)

    def flush(self, whole: bool) -> list[WrittenSentence]:
        """Returns the rest, now that no more text comes.

        Args:
            whole: Whether the text ended by itself; where it was cut, its last sentence is whole only if it looks so.
        """
        self._open += self._undecided
        self._undecided = ""
        sentences = self._let_go(_items_joined(self._open, sentence_spans(self._open)))
        if sentences and not whole and not _ENDED.search(sentences[-1].text):
            sentences[-1] = replace(sentences[-1], whole=False)
        return sentences

    def _take(self, text: str) -> None:
        """Moves what is decided from the text to the open sentences, its markers apart."""
        text = self._undecided + text
        found = _UNDECIDED.search(text)
        cut = len(text) if found is None else found.start()
        self._undecided = text[cut:]
        done = 0
        for marker in _MARKER.finditer(text, 0, cut):
            self._open += text[done : marker.start()]
            self._markers += ((len(self._open), int(number)) for number in _NUMBER.findall(marker[1]))
            done = marker.end()
        self._open += text[done:cut]

    def _let_go(self, spans: Sequence[tuple[int, int]]) -> list[WrittenSentence]:
        """Makes sentences of the first spans and forgets them; what is between them and the next stays."""
        sentences = []
        end = 0
        for start, next_end in spans:
            new_line = self._said_any and "\n" in self._open[end:start]
            end = next_end
            markers = frozenset(number for place, number in self._markers if place <= end)
            self._markers = [(place, number) for place, number in self._markers if place > end]
            sentences.append(WrittenSentence(self._open[start:end], new_line, markers))
            self._said_any = True
        self._open = self._open[end:]
        self._markers = [(place - end, number) for place, number in self._markers]
        return sentences


def _items_joined(text: str, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Joins the number or bullet of a list item to the sentence after it on its line."""
    joined: list[tuple[int, int]] = []
    for start, end in spans:
        before = joined[-1] if joined else None
        if before and _ITEM.match(text, *before) and "\n" not in text[before[1] : start]:
            joined[-1] = (before[0], end)
        else:
            joined.append((start, end))
    return joined
