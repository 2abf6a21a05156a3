"""Replaces ``[n]`` markers in streamed text by citations of passage n."""

from __future__ import annotations

import re
from collections.abc import Sequence

from edge_rag.core.answer import Citation, TextDelta
from edge_rag.core.passage import Passage

_MARKER = re.compile(r"(\s*)\[(\d{1,3})\]")
_PENDING = re.compile(r"\s*(?:\[\d{0,3})?\Z")


class CitationMapper:
    """Splits a streamed answer into text without markers, and citations.

    A marker cites for the text since the previous marker; adjacent markers cite for the same text. A number without a
    passage stays text. White space before a marker is removed with it.

    Args:
        passages: The passages of the prompt.
        numbering: Indices of the passages in the order in which the prompt numbers them, from 1.
    """

    def __init__(self, passages: Sequence[Passage], numbering: Sequence[int]) -> None:
        self._passages = passages
        self._numbering = numbering
        self._held = ""
        self._length = 0
        self._cited_range = (0, 0)
        self._open_start: int | None = None

    def feed(self, text: str) -> list[TextDelta | Citation]:
        """Takes the next piece; a suffix that may become a marker is held back."""
        text = self._held + text
        cut = _pending_start(text)
        self._held = text[cut:]
        return self._map(text[:cut])

    def flush(self) -> list[TextDelta | Citation]:
        """Returns the text held back, at the end of the stream."""
        held, self._held = self._held, ""
        return self._map(held)

    def _map(self, text: str) -> list[TextDelta | Citation]:
        events: list[TextDelta | Citation] = []
        done = 0
        for marker in _MARKER.finditer(text):
            number = int(marker[2])
            if 1 <= number <= len(self._numbering):
                self._append(text[done : marker.start()], events)
                events.append(self._cite(self._numbering[number - 1]))
                done = marker.end()
        self._append(text[done:], events)
        return events

    def _append(self, text: str, events: list[TextDelta | Citation]) -> None:
        if self._length == 0:
            text = text.lstrip()
        if not text:
            return
        events.append(TextDelta(text))
        if self._open_start is None and (stripped := text.lstrip()):
            self._open_start = self._length + len(text) - len(stripped)
        self._length += len(text)

    def _cite(self, index: int) -> Citation:
        if self._open_start is not None:
            self._cited_range = (self._open_start, self._length)
            self._open_start = None
        passage = self._passages[index]
        start, end = self._cited_range
        return Citation(
            passage=index,
            document=passage.document,
            page=passage.page,
            start=passage.start,
            end=passage.end,
            text=passage.text,
            answer_start=start,
            answer_end=end,
        )


def _pending_start(text: str) -> int:
    """Returns the start of the suffix that more text could turn into a marker."""
    found = _PENDING.search(text)
    return found.start() if found else len(text)
