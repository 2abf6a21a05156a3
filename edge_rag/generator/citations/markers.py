"""``[n]`` markers in streamed text become citations of passage n."""

from __future__ import annotations

import re
from collections.abc import Sequence

from edge_rag.core.answer import Citation, TextDelta
from edge_rag.core.passage import Passage

_MARKER = re.compile(r"(\s*)\[(\d{1,3})\]")
_UNDECIDED = re.compile(r"\s*(?:\[\d{0,3})?\Z")


class CitationMapper:
    """Takes an answer in pieces and gives its text without markers, and the citations.

    A marker supports the text since the marker before it; markers side by side support the same text. A number without
    a passage is left as text. White space before a marker goes with it.

    Args:
        passages: The passages of the prompt.
        numbering: Index in ``passages`` of the one that the prompt numbers 1, of the one that it numbers 2, and so on.
    """

    def __init__(self, passages: Sequence[Passage], numbering: Sequence[int]) -> None:
        self._passages = passages
        self._numbering = numbering
        self._held = ""
        self._length = 0
        self._supported = (0, 0)
        self._open_start: int | None = None

    def feed(self, text: str) -> list[TextDelta | Citation]:
        """Takes the next piece; what may turn out to be a marker is held back."""
        text = self._held + text
        cut = _undecided_start(text)
        self._held = text[cut:]
        return self._map(text[:cut])

    def flush(self) -> list[TextDelta | Citation]:
        """Takes what was held back as it is, now that no more text comes."""
        held, self._held = self._held, ""
        return self._map(held)

    def _map(self, text: str) -> list[TextDelta | Citation]:
        events: list[TextDelta | Citation] = []
        done = 0
        for marker in _MARKER.finditer(text):
            number = int(marker[2])
            if 1 <= number <= len(self._numbering):
                self._say(text[done : marker.start()], events)
                events.append(self._cite(self._numbering[number - 1]))
                done = marker.end()
        self._say(text[done:], events)
        return events

    def _say(self, text: str, events: list[TextDelta | Citation]) -> None:
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
            self._supported = (self._open_start, self._length)
            self._open_start = None
        passage = self._passages[index]
        start, end = self._supported
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


def _undecided_start(text: str) -> int:
    """Returns where the end of the text begins that more text could turn into a marker."""
    found = _UNDECIDED.search(text)
    return found.start() if found else len(text)
