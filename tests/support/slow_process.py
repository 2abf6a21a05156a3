"""Slows a process down by stopping it periodically."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_RUNS_S = 0.005


@contextmanager
def slowed_down(pid: int, times: int) -> Iterator[None]:
    """Lets a process run for 5 ms of each ``times`` * 5 ms, until the block ends."""
    done = threading.Event()

    def alternate() -> None:
        while not done.is_set():
            os.kill(pid, signal.SIGSTOP)
            done.wait((times - 1) * _RUNS_S)
            os.kill(pid, signal.SIGCONT)
            done.wait(_RUNS_S)

    thread = threading.Thread(target=alternate)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
