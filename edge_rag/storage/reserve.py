"""Disk space kept for deletions, which need some before they give any back."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

LEAST_BYTES: Final = 1 << 20
"""Size of a reserve before anything was written."""

LARGEST_SHARE: Final = 0.05
"""Most of a file system that a reserve takes."""


class Reserve:
    """A file of allocated blocks that is emptied where a deletion finds the disk full, and filled again after it.

    A deletion writes to the log about what the write that it undoes has written: each page of the document once. So the
    reserve is at least twice as large as the largest write. Not for several threads at once.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._wanted = max(LEAST_BYTES, self.size)

    @property
    def size(self) -> int:
        """Its present size, bytes."""
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    def fill(self, written: int = 0) -> None:
        """Allocates the missing bytes, as far as the disk has them.

        Args:
            written: Size of a write that a deletion may have to undo, bytes.
        """
        self._wanted = max(self._wanted, 2 * written)
        with contextlib.suppress(OSError):  # a full disk: the next write tries again
            disk = os.statvfs(self._path.parent)
            size = min(self._wanted, int(LARGEST_SHARE * disk.f_frsize * disk.f_blocks))
            if self.size < size:
                with self._path.open("ab") as file:
                    os.posix_fallocate(file.fileno(), 0, size)

    def release(self) -> bool:
        if not self.size:
            return False
        with contextlib.suppress(OSError):
            os.truncate(self._path, 0)
            return True
        return False
