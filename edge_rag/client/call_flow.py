"""What a call does, step by step, without doing it.

A flow is a generator. It yields one step after the other, is sent what came of each, or has thrown into it what went
wrong, and returns the result of the call. ``blocking`` and ``asynchronous`` take the steps; nothing else tells the two
clients apart.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from google.protobuf.message import Message

from edge_rag.client.failures import ClientError
from edge_rag.client.methods import Method, Reply, Request
from edge_rag.client.retry import RetryPolicy

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Terms:
    """What a client was told about all of its calls.

    Attributes:
        address: The daemon.
        timeout_s: Deadline of a call with all its repetitions, seconds; None leaves it to the server.
        retry: When a call is repeated.
        now: A clock, seconds.
        draw: A random number, 0 to 1.
    """

    address: str
    timeout_s: float | None
    retry: RetryPolicy
    now: Callable[[], float] = time.monotonic
    draw: Callable[[], float] = random.random


@dataclass(frozen=True, slots=True)
class Exchange:
    """Call a method that gives one reply, and have it sent back.

    Attributes:
        method: The method.
        request: Its request; where it takes a stream, the requests, which may block and raise OSError or ClientError.
        timeout_s: Seconds until it fails; None for never.
    """

    method: Method[Any, Any]
    request: Message | Iterable[Message]
    timeout_s: float | None


@dataclass(frozen=True, slots=True)
class Begin:
    """Call a method that gives a stream of replies, in place of the one called before.

    Attributes:
        method: The method.
        request: As for ``Exchange``.
        timeout_s: Seconds until it fails; None for never.
        wait_for_ready: Whether a server that is not there is waited for.
    """

    method: Method[Any, Any]
    request: Message | Iterable[Message]
    timeout_s: float | None
    wait_for_ready: bool = False


@dataclass(frozen=True, slots=True)
class Receive:
    """Have the next reply of the stream sent back; None after the last."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait.

    Attributes:
        seconds: How long.
    """

    seconds: float


@dataclass(frozen=True, slots=True)
class Work:
    """Do something that may block.

    Attributes:
        action: What; its result is sent back. May raise OSError.
    """

    action: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Tell(Generic[T]):
    """Give the caller a value and go on when it asks for the next one."""

    value: T


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    """A flow is over.

    Attributes:
        result: What it returned.
    """

    result: T


Step: TypeAlias = Exchange | Begin | Receive | Pause | Work
Flow: TypeAlias = Generator[Step, Any, T]
"""A call with one result."""
Telling: TypeAlias = Generator[Step | Tell[T], Any, None]
"""A call that tells one value after the other."""


def resumed(flow: Generator[Step | Tell[Any], Any, T], outcome: object = None) -> Step | Tell[Any] | Done[T]:
    """Lets a flow go on with what came of its last step; returns its next one."""
    try:
        return flow.send(outcome)
    except StopIteration as end:
        return Done(end.value)


def failed(flow: Generator[Step | Tell[Any], Any, T], error: Exception) -> Step | Tell[Any] | Done[T]:
    """Lets a flow go on where its last step failed; returns its next one, or raises what the flow does not catch."""
    try:
        return flow.throw(error)
    except StopIteration as end:
        return Done(end.value)


def exchange(method: Method[Request, Reply], request: Request | Iterable[Request], terms: Terms) -> Flow[Reply]:
    """Calls a method that gives one reply, once, and returns the reply."""
    return (yield Exchange(method, request, terms.timeout_s))  # type: ignore[no-any-return]


def repeated(
    method: Method[Request, Reply], request: Callable[[], Request | Iterable[Request]], terms: Terms
) -> Flow[Reply]:
    """Calls a method that gives one reply as often as the terms allow, and returns the reply.

    Args:
        method: The method.
        request: Makes the request, for each attempt anew.
        terms: The terms.

    Raises:
        ClientError: The last attempt failed.
    """

    def attempt(timeout_s: float | None) -> Flow[Reply]:
        return (yield Exchange(method, request(), timeout_s))  # type: ignore[no-any-return]

    return (yield from repeating(attempt, terms))


def received(method: Method[Any, Reply]) -> Flow[Reply | None]:
    """Returns the next reply of the stream that was begun with a method; None after the last."""
    return (yield Receive())  # type: ignore[no-any-return]


def repeating(attempt: Callable[[float | None], Flow[T]], terms: Terms) -> Flow[T]:
    """Attempts something as often as the terms allow.

    Args:
        attempt: Attempts it within so many seconds.
        terms: The terms.

    Returns:
        What the first attempt that succeeded returned.

    Raises:
        ClientError: The last attempt failed.
    """
    deadline = None if terms.timeout_s is None else terms.now() + terms.timeout_s
    waited_s, failures = 0.0, 0
    while True:
        left_s = None if deadline is None else max(0.0, deadline - terms.now())
        try:
            return (yield from attempt(left_s))
        except ClientError as error:
            failures += 1
            delay_s = terms.retry.delay(error, failures, waited_s, terms.draw())
            if delay_s is None or (left_s is not None and delay_s >= left_s):
                raise
        yield Pause(delay_s)
        waited_s += delay_s
