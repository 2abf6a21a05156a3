"""Results go to standard output, notes and progress to standard error."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, Final, Literal

import click

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
    """Prints one JSON value on one line of standard output."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    click.echo(escape_invisible_json(text).encode("utf-8", "replace"))


def print_line(text: str) -> None:
    """Prints a line with names of documents on standard output; see ``printable`` and ``isolate_right_to_left``."""
    shown = printable(text)
    click.echo(isolate_right_to_left(shown) if sys.stdout.isatty() else shown)


class StreamedText:
    """Prints streamed document text on standard output, without a line break."""

    def __init__(self) -> None:
        self._escaper = InvisibleEscaper()

    def write(self, text: str) -> None:
        """Prints the next text."""
        click.echo(self._escaper.feed(text.replace("\r\n", "\n")), nl=False)

    def end(self) -> None:
        """Ends the line."""
        click.echo(self._escaper.end())


def note(text: str, style: Style = "") -> None:
    """Prints a line on standard error, styled only on a terminal without NO_COLOR; invisible characters are escaped."""
    click.secho(printable(text), err=True, color=False if os.environ.get("NO_COLOR") else None, **_STYLES[style])


def error_console() -> Console:
    """Returns a console for tables and progress on standard error, styled only on a terminal without NO_COLOR."""
    from rich.console import Console

    return Console(file=sys.stderr, highlight=False, markup=False, soft_wrap=True)


def printable(text: str) -> str:
    """Escapes characters that could control a terminal or mislead a reader: document text is untrusted."""
    return escape_invisible(text.replace("\r\n", "\n"))
