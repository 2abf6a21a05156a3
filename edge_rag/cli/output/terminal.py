"""Where output goes: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
import re
import sys

import click
from rich.console import Console

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def emit(value: object) -> None:
    """Prints one JSON value on one line of standard output."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    click.echo(text.encode("utf-8", "replace"))


def write(text: str) -> None:
    """Prints document text on standard output as it comes, without a line break."""
    click.echo(visible(text), nl=False)


def notes() -> Console:
    """Returns the console for notes and progress: standard error, coloured only on a terminal without NO_COLOR."""
    return Console(file=sys.stderr, highlight=False, markup=False, soft_wrap=True)


def visible(text: str) -> str:
    """Replaces what could steer a terminal: document text is not trusted."""
    return _CONTROL.sub("�", text.replace("\r\n", "\n"))
