"""Ctrl-C while a client waits for the next reply."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, cast

import pytest

from edge_rag.client.transport import SyncReplies


class Interrupted:
    """A call that Ctrl-C reaches in the midst of its code."""

    def __init__(self) -> None:
        self.cancelled = self.left = False

    def __next__(self) -> Any:
        signal.raise_signal(signal.SIGINT)
        self.left = True
        return "reply"

    def cancel(self) -> None:
        self.cancelled = True


@contextmanager
def handling(handler: Any) -> Iterator[None]:
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def replies(call: Interrupted) -> SyncReplies[Any]:
    return SyncReplies(cast(Any, call), "localhost:1")


def test_ctrl_c_cancels_the_call_and_interrupts_when_its_code_has_ended() -> None:
    call = Interrupted()
    with handling(signal.default_int_handler):
        with pytest.raises(KeyboardInterrupt):
            next(replies(call))
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert (call.cancelled, call.left) == (True, True)


def test_a_programs_own_handler_of_ctrl_c_stays_in_place() -> None:
    call, seen = Interrupted(), []
    with handling(lambda number, frame: seen.append(number)):
        assert next(replies(call)) == "reply"
    assert (seen, call.cancelled) == ([signal.SIGINT], False)


def test_other_threads_leave_ctrl_c_to_the_main_thread() -> None:
    call = Interrupted()
    with handling(signal.SIG_IGN), ThreadPoolExecutor(1) as threads:
        assert threads.submit(next, replies(call)).result() == "reply"
    assert not call.cancelled
