"""Replies of the parser process about pages: pictures, and boxes of characters. Nothing here imports a parser."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

MAX_PIXELS: Final = 6_000_000
"""Most pixels of a picture: a page of A4 that is 2,000 pixels wide has 5.7 million."""

BOX_SCALE: Final = 65_535
"""What 1 is in relative coordinates that are whole numbers."""

RelativeBox = tuple[int, int, int, int]
"""Left, top, right and bottom of a box on the page as it is shown, 0 to ``BOX_SCALE``, y downwards."""


def relative_box(left: float, top: float, right: float, bottom: float) -> RelativeBox | None:
    """Returns a box, 0 to 1, in whole numbers, cut to the page; None if nothing of it is left."""
    sides = [round(min(max(side, 0.0), 1.0) * BOX_SCALE) for side in (left, top, right, bottom)]
    return (sides[0], sides[1], sides[2], sides[3]) if sides[0] < sides[2] and sides[1] < sides[3] else None


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of a page.

    Attributes:
        pixels: Three bytes a pixel: red, green and blue, row by row from the top.
    """

    width: int
    height: int
    pixels: bytes


PACKED: Final = struct.Struct("<II4H")
"""A ``CharacterBox`` in 16 bytes."""


@dataclass(frozen=True, slots=True)
class CharacterBox:
    """A character of the text and where it is."""

    position: int
    line: int
    box: RelativeBox


@dataclass(frozen=True, slots=True)
class PageBoxes:
    """The characters of a page.

    Attributes:
        page: 1-based page number.
        packed: Those with a box, in the order of the text, each as ``PACKED``: position, line and box.
    """

    page: int
    width: float
    height: float
    packed: bytes

    def characters(self) -> Iterator[CharacterBox]:
        """Yields those with a box, in the order of the text."""
        for position, line, *box in PACKED.iter_unpack(self.packed):
            yield CharacterBox(position, line, (box[0], box[1], box[2], box[3]))


@dataclass(frozen=True, slots=True)
class DocumentBoxes:
    """The characters of some pages of a document.

    Attributes:
        text_sha256: SHA-256 of the document's text in UTF-8, lower-case hex.
    """

    text_sha256: str
    pages: tuple[PageBoxes, ...]
