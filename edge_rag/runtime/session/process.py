"""Limits memory growth and garbage-collection pauses of a long-running process, and its compute threads' priority."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
from typing import Final

NICENESS: Final = 10
"""Niceness of compute threads above that of the process's first thread. On a busy machine they get about a tenth of the
processor time that the request threads get (sched(7))."""

_NICEST: Final = 19
_M_ARENA_MAX: Final = -8  # malloc.h
_GC_THRESHOLD: Final = 10_000


def lower_priority() -> None:
    """Lowers the priority of this thread and of the threads that it starts afterwards; only Linux can.

    Otherwise a call that could be refused at once waits, while all processors compute, until its thread gets one.
    """
    if sys.platform == "linux":
        first = os.getpriority(os.PRIO_PROCESS, os.getpid())
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), min(_NICEST, first + NICENESS))


def limit_malloc_arenas(arenas: int = 2) -> None:
    """Makes all threads share a few arenas; otherwise short-lived threads leave arenas behind that are never freed.

    Must be called before threads are started. Does nothing where the C library is not glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, arenas)


def raise_gc_threshold() -> None:
    """Makes Python collect garbage after 10,000 new objects instead of 700.

    A call leaves five objects in a cycle, and a full collection stops all threads.
    """
    gc.set_threshold(_GC_THRESHOLD)


def trim_malloc() -> None:
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def freeze_gc() -> None:
    """Collects garbage and excludes every object that is left from later collections.

    Otherwise a full collection visits all of them while all threads wait. The next call collects cycles among them.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
