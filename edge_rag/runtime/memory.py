"""Keeping the memory of a process that runs for months from creeping up, where the C library is glibc."""

from __future__ import annotations

import ctypes
import gc
from typing import Final

_M_ARENA_MAX: Final = -8  # malloc.h


def share_malloc_arenas(arenas: int = 2) -> None:
    """Has all threads allocate from a few arenas. Otherwise threads that come and go leave arenas of their own behind.

    Call it before threads are started.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, arenas)


def give_back_free_memory() -> None:
    """Collects what only cycles hold, and returns free memory to the system."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
