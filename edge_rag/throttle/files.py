"""Small files in which the kernel shows a state. One that is missing or cannot be read is no state, not an error."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_MOST_BYTES: Final = 65_536


def read_text(path: Path) -> str | None:
    """Returns the content without the white space around it; None where there is none to be had."""
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode("ascii", "replace").strip("\0 \t\n")
    except OSError:
        return None


def read_number(path: Path) -> int | None:
    """Returns the whole number in a file, in any of Python's notations; None where there is none."""
    text = read_text(path)
    try:
        return None if text is None else int(text, 0)
    except ValueError:
        return None
