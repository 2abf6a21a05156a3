import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest

from edge_rag.client.transport import SyncReplies, SyncTransport


class Interrupted:
    """A call that Ctrl-C reaches in the midst of its code."""

    def __init__(self) -> None:
        self.cancelled = self.left = False

    def __next__(self) -> Any:
        signal.raise_signal(signal.SIGINT)
        self.left = True
        return "reply"

    def result(self) -> Any:
        return next(self)

    def cancel(self) -> None:
        self.cancelled = True


@contextmanager
def handling(handler: Any, number: signal.Signals = signal.SIGINT) -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


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


class InterruptedStart:
    """A method that Ctrl-C reaches while it starts a call."""

    def __init__(self, number: signal.Signals) -> None:
        self.number = number
        self.calls: list[Ended] = []

    def future(self, *arguments: Any, **options: Any) -> Any:
        signal.raise_signal(self.number)
        self.calls.append(Ended())
        return self.calls[-1]

    __call__ = future


class Ended:
    """A call that waits until it is cancelled."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()

    def result(self) -> Any:
        if not self.cancelled.wait(30):
            raise AssertionError("it is not cancelled")
        raise grpc.FutureCancelledError

    def cancel(self) -> None:
        self.cancelled.set()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("form", ["call", "upload", "stream", "upload_stream"])
def test_ctrl_c_while_a_call_starts_cancels_it_once_it_has_started(number: signal.Signals, form: str) -> None:
    method = InterruptedStart(number)
    transport = SyncTransport("localhost:1", None)
    try:
        with handling(signal.default_int_handler, number), pytest.raises(KeyboardInterrupt):
            getattr(transport, form)(method, (), None)
    finally:
        transport.close()
    assert [call.cancelled.is_set() for call in method.calls] == [True]


@pytest.mark.parametrize("form", ["call", "upload"])
def test_ctrl_c_while_a_call_waits_for_its_reply_cancels_it(form: str) -> None:
    call = Interrupted()
    transport = SyncTransport("localhost:1", None)
    try:
        with handling(signal.default_int_handler), pytest.raises(KeyboardInterrupt):
            getattr(transport, form)(SimpleNamespace(future=lambda *_, **__: call), (), None)
    finally:
        transport.close()
    assert (call.cancelled, call.left) == (True, True)
