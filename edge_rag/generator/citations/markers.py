"""The ``[n]`` markers that models write to name a passage, and their removal from text that nothing checks."""

from __future__ import annotations

import re
from typing import Final

MARKER: Final = re.compile(r"[ \t]*\[(\d{1,3}(?: ?[,;–-] ?\d{1,3}){0,7})\]")
"""A marker with the blanks before it; the group has its numbers: ``1``, ``1, 7`` or ``1–3``."""

PENDING: Final = re.compile(r"[ \t]*(?:\[[\d ,;–-]{0,50})?\Z")
"""The end of a text that more text could turn into a marker; may be empty."""

_PENDING_WITHIN: Final = re.compile(r"(?:[ \t]*\[[\d ,;–-]{0,50}){0,8}[ \t]*\Z")
"""The same where the rest of a marker is left when one inside it is removed, as of ``[1[2]]``."""

NUMBER: Final = re.compile(r"\d+")
"""A number in a marker."""


class MarkerRemover:
    """Removes the markers of a streamed text: beside text that nothing checked they would look like support.

    Passages are numbered from 1, so that ``[0]`` stays: it is an index of a program's list. The result does not depend
    on how the text is chunked.
    """

    def __init__(self) -> None:
        self._held = ""
        self._shown = False

    def feed(self, text: str) -> str:
        text = _without_markers(self._held + text)
        found = _PENDING_WITHIN.search(text)
        cut = found.start() if found else len(text)
        self._held = text[cut:]
        return self._begun(text[:cut])

    def flush(self) -> str:
        held, self._held = self._held, ""
        return self._begun(held)

    def _begun(self, text: str) -> str:
        """Returns the text without blanks at the beginning of the stream."""
        if not self._shown:
            text = text.lstrip()
            self._shown = bool(text)
        return text


def _without_markers(text: str) -> str:
    while (shorter := MARKER.sub(_kept, text)) != text:
        text = shorter
    return text


def _kept(marker: re.Match[str]) -> str:
    return marker[0] if any(not int(number) for number in NUMBER.findall(marker[1])) else ""
