"""Waits for a condition, within a bound."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], limit_s: float, what: str, interval_s: float = 0.2) -> None:
    """Asks for a condition every ``interval_s`` seconds until it holds.

    Raises:
        TimeoutError: It did not hold within ``limit_s`` seconds; names ``what``.
    """
    deadline, never = time.monotonic() + limit_s, threading.Event()
    while not condition():
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{what} took more than {limit_s:g} s")
        never.wait(interval_s)
