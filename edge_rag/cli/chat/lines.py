"""The lines of a chat: typed at a terminal with line editing, or read from standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from edge_rag.cli.batch import QuestionLine, read_questions
from edge_rag.cli.chat.history import History
from edge_rag.cli.output.terminal import note

_PROMPT = "> "


def typed_lines(history: History | None) -> Iterator[QuestionLine]:
    """Yields the lines typed at the terminal, except blank ones, until Ctrl-D; Ctrl-C drops the current line.

    Args:
        history: Earlier lines, which the arrow keys and Ctrl-R find; each line is added to it. None keeps the lines of
            this chat only, in memory.
    """
    _edit_lines(history)
    while True:
        try:
            text = _read().strip()
        except EOFError:
            click.echo(err=True)
            return
        except KeyboardInterrupt:
            click.echo(err=True)
            continue
        if not text:
            continue
        if history is not None:
            try:
                history.add(text)
            except OSError as error:
                note(f"the history is not kept: {error}", "yellow")
                history = None
        yield QuestionLine(text.encode("utf-8", "replace").decode(), None)


def piped_lines() -> Iterator[QuestionLine]:
    """Yields the lines of standard input that are not blank."""
    return read_questions(sys.stdin.buffer, "standard input")


def _edit_lines(history: History | None) -> None:
    try:
        import readline
    except ImportError:
        return
    try:
        for line in history.lines() if history is not None else []:
            readline.add_history(line)
    except OSError as error:
        note(f"the history cannot be read: {error}", "yellow")


def _read() -> str:
    if sys.stdout.isatty():
        return input(_PROMPT)
    click.echo(_PROMPT, nl=False, err=True)  # where answers go to a file, ``input`` would write the prompt there, too
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line
