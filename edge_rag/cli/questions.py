"""Many questions at once: read one a line, answered several at a time, reported in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from edge_rag.client import CallStatus, ClientError

In = TypeVar("In")
Out = TypeVar("Out")

_AHEAD = 4


@dataclass(frozen=True, slots=True)
class QuestionLine:
    """A line that is not blank.

    Attributes:
        text: The question; bytes that are not UTF-8 appear as U+FFFD.
        problem: Why it cannot be asked, or None.
    """

    text: str
    problem: ClientError | None


def read_questions(lines: Iterable[bytes], name: str) -> Iterator[QuestionLine]:
    """Reads questions, one a line; blank lines are skipped.

    Args:
        lines: The file.
        name: What to call it in messages.
    """
    for number, line in enumerate(lines, start=1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            problem = None
        except UnicodeDecodeError as error:
            text = line.decode("utf-8", "replace").strip()
            problem = ClientError(
                CallStatus.INVALID_ARGUMENT,
                f"{name}, line {number}: not valid UTF-8 at byte {error.start + 1} (0x{line[error.start]:02x})",
            )
        if text:
            yield QuestionLine(text, problem)


def in_order(items: Iterable[In], work: Callable[[In], Out], concurrency: int) -> Iterator[Out]:
    """Yields ``work(item)`` for each item, in order, with up to ``concurrency`` running at once.

    Items are taken only a little ahead of what was yielded, so that an endless input is no trouble. Closing the
    iterator drops what has not begun.
    """
    pool = ThreadPoolExecutor(concurrency)
    pending: deque[Future[Out]] = deque()
    try:
        for item in items:
            pending.append(pool.submit(work, item))
            while len(pending) >= concurrency * _AHEAD or (pending and pending[0].done()):
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
