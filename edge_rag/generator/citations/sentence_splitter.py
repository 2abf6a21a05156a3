"""Splits a model's streamed text into sentences; pure.

Sentence ends are those of ``core.text``, which needs the beginning of the next sentence. ``[n]`` markers are removed,
with the blanks before them, and returned separately. The result does not depend on how the text is chunked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from edge_rag.core.text import SENTENCE_TERMINALS, sentence_spans
from edge_rag.generator.citations.markers import MARKER, NUMBER, PENDING

_ENDED: Final = re.compile(rf"""[.!?…{SENTENCE_TERMINALS}]["'”’)\]»」』】）》*_]*\Z""")
_PREFIX: Final = re.compile(
    r"(?:(?:\d{1,2}[.)]|[-*•#]+)\s+)?(?:(?:according to|based on|as stated in) [^,.]{1,60},\s+)?"
    r"(?:(?:so,? )?the (?:correct |final |short )?answer(?: to (?:this|that|the|your) question)? is"
    r"(?::\s*|\s+(?=[\"“])))?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class AnswerSentence:
    """A sentence of an answer.

    Attributes:
        text: Its text, trimmed, without markers; not empty.
        new_line: Whether it starts a line and is not the first sentence.
        markers: Numbers in the markers inside and directly after it.
    """

    text: str
    new_line: bool
    markers: frozenset[int]
    complete: bool = True

    @property
    def claim(self) -> str:
        """The text without a list item's number or bullet, and without phrases that name its source or announce it."""
        return self.text[_PREFIX.match(self.text).end() :]  # type: ignore[union-attr]


class SentenceSplitter:
    """Splits one text."""

    def __init__(self) -> None:
        self._pending = ""
        self._open = ""
        self._markers: list[tuple[int, int]] = []
        self._has_output = False

    def feed(self, text: str) -> list[AnswerSentence]:
        self._append(text)
        return self._take(sentence_spans(self._open)[:-1])

    def flush(self, complete: bool) -> list[AnswerSentence]:
        """Returns the rest, at the end of the text.

        Args:
            complete: Whether the model ended the text. If it was truncated, its last sentence is complete only if it
                ends in punctuation.
        """
        self._open += self._pending
        self._pending = ""
        sentences = self._take(sentence_spans(self._open))
        if sentences and not complete and not _ENDED.search(sentences[-1].text):
            sentences[-1] = replace(sentences[-1], complete=False)
        return sentences

    def _append(self, text: str) -> None:
        """Moves text that cannot be part of a marker to the open sentences, and its markers to their list."""
        text = self._pending + text
        found = PENDING.search(text)
        cut = len(text) if found is None else found.start()
        self._pending = text[cut:]
        done = 0
        for marker in MARKER.finditer(text, 0, cut):
            self._open += text[done : marker.start()]
            self._markers += ((len(self._open), int(number)) for number in NUMBER.findall(marker[1]))
            done = marker.end()
        self._open += text[done:cut]

    def _take(self, spans: Sequence[tuple[int, int]]) -> list[AnswerSentence]:
        """Removes the spans from the open text and returns them as sentences."""
        sentences = []
        end = 0
        for start, next_end in spans:
            new_line = self._has_output and "\n" in self._open[end:start]
            end = next_end
            markers = frozenset(number for place, number in self._markers if place <= end)
            self._markers = [(place, number) for place, number in self._markers if place > end]
            sentences.append(AnswerSentence(self._open[start:end], new_line, markers))
            self._has_output = True
        self._open = self._open[end:]
        self._markers = [(place - end, number) for place, number in self._markers]
        return sentences
