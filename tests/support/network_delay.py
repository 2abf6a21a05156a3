"""A process that gets a small share of its time, as if its machine were so many times as slow."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_RUNS_S = 0.005


@contextmanager
def slowed(pid: int, times: int) -> Iterator[None]:
    """Has a process run for 5 ms and stand still for so many times as long less one, by turns, until the block ends."""
    done = threading.Event()

    def take_turns() -> None:
        while not done.is_set():
            os.kill(pid, signal.SIGSTOP)
            done.wait((times - 1) * _RUNS_S)
            os.kill(pid, signal.SIGCONT)
            done.wait(_RUNS_S)

    turns = threading.Thread(target=take_turns)
    turns.start()
    try:
        yield
    finally:
        done.set()
        turns.join()
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
