"""Small files of the kernel, read below a root, so that a recorded tree can take the machine's place."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_MOST_CORES: Final = 8192  # what Linux can be built for


def text_of(path: Path) -> str | None:
    """Returns a file's text without white space around it and without NULs at the end; None where it cannot be read."""
    try:
        return path.read_bytes().decode("utf-8", errors="replace").strip("\0 \t\r\n")
    except OSError:
        return None


def integer_of(path: Path) -> int | None:
    """Returns the integer a file holds; None where it cannot be read or holds something else."""
    text = text_of(path)
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def cpu_list(text: str) -> frozenset[int]:
    """Reads a list of cores as the kernel writes it, for example ``0-3,6``; what is not one is left out."""
    numbers: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            numbers.update(range(int(first), min(int(last or first), _MOST_CORES) + 1))
    return frozenset(numbers)
