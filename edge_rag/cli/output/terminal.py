"""Results go to standard output, notes and progress to standard error."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO

import click

from edge_rag.cli.output.wrapping import WordWrap, columns_of, wrapped
from edge_rag.core.visible_text import (
    InvisibleEscaper,
    escape_invisible,
    escape_invisible_json,
    isolate_right_to_left,
)

if TYPE_CHECKING:
    from rich.console import Console

Style = Literal["", "dim", "yellow", "red", "bold red"]
_STYLES: Final[dict[str, dict[str, Any]]] = {
    "": {},
    "dim": {"dim": True},
    "yellow": {"fg": "yellow"},
    "red": {"fg": "red"},
    "bold red": {"fg": "red", "bold": True},
}


def counted(count: int, noun: str) -> str:
    """Formats a number of things: ``1 document``, ``2,000 documents``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def emit(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    click.echo(escape_invisible_json(text).encode("utf-8", "replace"))


def print_line(text: str) -> None:
    shown = printable(text)
    click.echo(isolate_right_to_left(shown) if sys.stdout.isatty() else shown)


class StreamedText:
    """Prints streamed document text on standard output, wrapped at the words on a terminal."""

    def __init__(self) -> None:
        self._escaper = InvisibleEscaper()
        self._wrap = WordWrap(columns_of(sys.stdout))

    def write(self, text: str) -> None:
        click.echo(self._wrap.feed(self._escaper.feed(text.replace("\r\n", "\n"))), nl=False)

    def end(self) -> None:
        click.echo(self._wrap.feed(self._escaper.end()) + self._wrap.end())


def note(text: str, style: Style = "") -> None:
    """Prints a line on standard error, styled and wrapped only on a terminal; invisible characters are escaped.

    NO_COLOR turns styles off.
    """
    shown = wrapped(printable(text), columns_of(sys.stderr))
    click.secho(shown, err=True, color=False if os.environ.get("NO_COLOR") else None, **_STYLES[style])


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns the lines of a table: columns two spaces apart, those of numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    numbers = [all(cell[:1].isdigit() or cell == "-" for cell in column[1:]) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, numbers, strict=True)
        ).rstrip()
        for row in rows
    ]


def shows_times(verbose: bool) -> bool:
    """Whether times of a call are shown: only to who asks for them or reads a terminal."""
    return verbose or sys.stderr.isatty()


def print_block(text: str, indent: str) -> None:
    for line in text.splitlines():
        click.echo(wrapped(printable(f"{indent}{line}"), columns_of(sys.stdout), indent))


def error_console() -> Console:
    """Returns a console for progress on standard error, styled only on a terminal without NO_COLOR."""
    return _console(sys.stderr)


def output_console() -> Console:
    """Returns a console for tables on standard output, styled only on a terminal without NO_COLOR."""
    return _console(sys.stdout)


def _console(file: TextIO) -> Console:
    from rich.console import Console

    return Console(file=file, highlight=False, markup=False, soft_wrap=True)


def printable(text: str) -> str:
    """Escapes characters that could control a terminal or mislead a reader: document text is untrusted."""
    return escape_invisible(text.replace("\r\n", "\n"))


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
