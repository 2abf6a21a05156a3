"""Results go to standard output, notes and progress to standard error."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import TYPE_CHECKING, Any, Final, Literal

import click

if TYPE_CHECKING:
    from rich.console import Console

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

Style = Literal["", "dim", "yellow", "red", "bold red"]
_STYLES: Final[dict[str, dict[str, Any]]] = {
    "": {},
    "dim": {"dim": True},
    "yellow": {"fg": "yellow"},
    "red": {"fg": "red"},
    "bold red": {"fg": "red", "bold": True},
}


def emit(value: object) -> None:
    """Prints one JSON value on one line of standard output."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    click.echo(text.encode("utf-8", "replace"))


def write(text: str) -> None:
    """Prints streamed document text on standard output, without a line break."""
    click.echo(printable(text), nl=False)


def note(text: str, style: Style = "") -> None:
    """Prints a line on standard error, styled only on a terminal without NO_COLOR; control characters are replaced."""
    click.secho(printable(text), err=True, color=False if os.environ.get("NO_COLOR") else None, **_STYLES[style])


def error_console() -> Console:
    """Returns a console for tables and progress on standard error, styled only on a terminal without NO_COLOR."""
    from rich.console import Console

    return Console(file=sys.stderr, highlight=False, markup=False, soft_wrap=True)


def printable(text: str) -> str:
    """Replaces characters that could control a terminal: document text is untrusted."""
    return _CONTROL.sub("�", text.replace("\r\n", "\n"))
