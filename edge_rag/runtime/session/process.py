"""Threads that compute with what the threads that take calls leave over.

Keeping the memory of a process that runs for months from creeping up, and what collecting it costs short.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
from typing import Final

NICENESS: Final = 10
"""How much nicer than the process's first thread. On a busy machine that leaves about a tenth of what the other gets
(sched(7))."""

_NICEST: Final = 19


def step_back() -> None:
    """Lowers the priority of this thread and of those it starts from now on.

    Otherwise, while all processors compute, a call that could be refused at once waits until the thread that takes
    calls gets one of them. Linux has a priority for each thread, which others have not; there nothing happens.
    """
    if sys.platform == "linux":
        first = os.getpriority(os.PRIO_PROCESS, os.getpid())
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), min(_NICEST, first + NICENESS))


_M_ARENA_MAX: Final = -8  # malloc.h

_YOUNG: Final = 10_000
"""Objects that may have come since the last collection before there is one; Python's own number is 700."""


def share_malloc_arenas(arenas: int = 2) -> None:
    """Has all threads allocate from a few arenas. Otherwise threads that come and go leave arenas of their own behind.

    Call it before threads are started. Does nothing where the C library is not glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, arenas)


def collect_less_often() -> None:
    """Has Python look for cycles when there are ten thousand new objects, not seven hundred.

    A call leaves five objects in a cycle. At a thousand calls a second Python's own bounds have a full collection every
    four seconds, and while one lasts all threads wait, 0.05 to 0.15 s on one busy processor.
    """
    gc.set_threshold(_YOUNG)


def give_back_free_memory() -> None:
    """Collects what only cycles hold, and returns free memory to the system."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def set_aside_what_stays() -> None:
    """Collects what only cycles hold, and leaves all there is then out of collections to come.

    Modules and models are some hundred thousand objects that live as long as the process. Every full collection looks
    at each of them while all threads wait, 0.1 to 0.5 s on a busy box of two cores. Cycles among what was set aside are
    collected when this is called again.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
