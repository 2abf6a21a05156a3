"""Asks every question of a file and prints one JSON line for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from edge_rag.cli.exit_codes import ExitCode, error_object
from edge_rag.cli.output.terminal import emit, notes
from edge_rag.cli.questions import QuestionLine, in_order, read_questions
from edge_rag.client import ClientError, RetryPolicy

BATCH_RETRY = RetryPolicy(patience_s=60)
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
