"""The lines typed in earlier chats: a file in the user's state folder that nobody else may read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from edge_rag.core.atomic_file import replace_file

MOST_LINES: Final = 1000
"""Lines that are kept; the file is cut to these when it has twice as many."""

LONGEST_LINE: Final = 1000
"""Most characters of a line that is kept."""

_MODE: Final = 0o600


def history_path() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(base).expanduser() / "edge-rag" / "chat-history"


class History:
    """Lines that were typed, oldest first."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def lines(self) -> list[str]:
        """Returns the newest lines."""
        try:
            lines = self._path.read_text("utf-8", errors="replace").rstrip("\n").split("\n")
        except FileNotFoundError:
            return []
        newest = lines[-MOST_LINES:]
        if len(lines) > 2 * MOST_LINES:
            replace_file(self._path, "".join(f"{line}\n" for line in newest).encode(), _MODE)
        return newest

    def add(self, line: str) -> None:
        """Adds a line, unless it is too long."""
        if len(line) > LONGEST_LINE:
            return
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, _MODE)
        with os.fdopen(descriptor, "ab") as file:
            os.fchmod(descriptor, _MODE)
            file.write(f"{line}\n".encode("utf-8", "replace"))
