"""Answers the questions of a file concurrently and prints one JSON line each, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from edge_rag.cli.exit_codes import ExitCode, error_json
from edge_rag.cli.output.terminal import emit, note
from edge_rag.client import CallStatus, ClientError

In = TypeVar("In")
Out = TypeVar("Out")

_AHEAD = 4


@dataclass(frozen=True, slots=True)
class QuestionLine:
    """A line that is not blank.

    Attributes:
        text: The question; bytes that are not UTF-8 are replaced with U+FFFD.
        error: Why it is not a valid question, or None.
    """

    text: str
    error: ClientError | None


def read_questions(lines: Iterable[bytes], name: str) -> Iterator[QuestionLine]:
    """Reads one question per line; skips blank lines. ``name`` is the name of the file in messages."""
    for number, line in enumerate(lines, start=1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            problem = None
        except UnicodeDecodeError as invalid:
            text = line.decode("utf-8", "replace").strip()
            problem = ClientError(
                CallStatus.INVALID_ARGUMENT,
                f"{name}, line {number}: not valid UTF-8 at byte {invalid.start + 1} (0x{line[invalid.start]:02x})",
            )
        if text:
            yield QuestionLine(text, problem)


def in_order(items: Iterable[In], work: Callable[[In], Out], concurrency: int) -> Iterator[Out]:
    """Yields ``work(item)`` for each item, in order, with up to ``concurrency`` running at once.

    At most ``4 * concurrency`` items are read ahead, so the input may be endless. Closing the iterator cancels items
    that have not started.
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


BATCH_RETRY_S = 60.0
"""A batch is not interactive: a call that the daemon refuses because its queue is full is retried for a minute."""


def answer_file(path: str, concurrency: int, answer: Callable[[str], dict[str, Any]]) -> ExitCode:
    """Prints ``answer(question)`` for each question of a file, in order; a failure is printed as its own line.

    Args:
        path: A file with one question per line, or - for standard input.
    """

    def attempt(line: QuestionLine) -> tuple[dict[str, Any], bool]:
        try:
            if line.error is not None:
                raise line.error
            return answer(line.text), True
        except ClientError as error:
            return {"question": _shortened(line.text), "error": error_json(error)}, False

    total = failed = 0
    name = "standard input" if path == "-" else path
    with click.open_file(path, "rb") as file:
        for result, succeeded in in_order(read_questions(file, name), attempt, concurrency):
            emit(result)
            total += 1
            failed += not succeeded
    if failed:
        note(f"{failed} of {total} questions failed", "red")
    return ExitCode.FAILURE if failed else ExitCode.OK


def _shortened(text: str) -> str:
    return text if len(text) <= 10_000 else text[:10_000] + "…"
