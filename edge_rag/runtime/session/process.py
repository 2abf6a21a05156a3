"""Threads that compute with what the threads that take calls leave over."""

from __future__ import annotations

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
