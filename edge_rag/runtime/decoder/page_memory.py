"""Memory for the pages of one layer, parts of which can be given back to the system while the rest stays in place."""

from __future__ import annotations

import mmap
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray


class PageMemory:
    """Zeroed memory that is taken from the system as it is written, and can be given back.

    It begins on a page of the processor's, and so on a cache line: vectors that straddle two lines cost a tenth of
    prefill's attention.

    Args:
        size: Bytes, at least 1.

    Raises:
        MemoryError: There is not that much address space.

    Attributes:
        array: int8 [size], over the memory.
    """

    def __init__(self, size: int) -> None:
        try:
            self._map = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, OverflowError, ValueError) as error:
            raise MemoryError(f"{size} bytes cannot be had: {error}") from error
        if hasattr(mmap, "MADV_HUGEPAGE"):
            # As numpy asks for its own large arrays; a kernel without huge pages refuses, and small ones do as well.
            with suppress(OSError):
                self._map.madvise(mmap.MADV_HUGEPAGE)
        self.array: NDArray[np.int8] = np.frombuffer(self._map, np.int8)

    def give_back(self, start: int, length: int) -> None:
        """Gives a range back, as far as it covers whole pages of the processor's; it reads as zeros from then on."""
        first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        last = (start + length) // mmap.PAGESIZE * mmap.PAGESIZE
        if last > first and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED, first, last - first)
