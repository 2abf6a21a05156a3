"""Asks every question of a file and prints one JSON line for each.

Many questions at once: read one a line, answered several at a time, reported in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from edge_rag.cli.exit_codes import ExitCode, error_object
from edge_rag.cli.output.terminal import emit, notes
from edge_rag.client import CallStatus, ClientError, RetryPolicy

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


BATCH_RETRY = RetryPolicy(max_backoff_s=60)
"""Nobody is waiting at the keyboard: a full queue is asked again for a minute."""


def answer_file(path: str, concurrency: int, answer: Callable[[str], dict[str, Any]]) -> ExitCode:
    """Prints ``answer(question)`` for each question of a file, in order; a failed one is its own line.

    Args:
        path: A file with one question a line, or - for standard input.
        concurrency: Questions asked at once.
        answer: Returns the JSON object of an answer, or raises ``ClientError``.
    """

    def attempt(line: QuestionLine) -> tuple[dict[str, Any], bool]:
        try:
            if line.problem is not None:
                raise line.problem
            return answer(line.text), True
        except ClientError as error:
            return {"question": _shortened(line.text), "error": error_object(error)}, False

    total = failed = 0
    name = "standard input" if path == "-" else path
    with click.open_file(path, "rb") as file:
        for result, succeeded in in_order(read_questions(file, name), attempt, concurrency):
            emit(result)
            total += 1
            failed += not succeeded
    if failed:
        notes().print(f"{failed} of {total} questions failed", style="red")
    return ExitCode.FAILURE if failed else ExitCode.OK


def _shortened(text: str) -> str:
    return text if len(text) <= 10_000 else text[:10_000] + "…"
