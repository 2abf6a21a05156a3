"""What each command of the documentation has to do: ``table.toml``, which has an entry for every one."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

TABLE: Final = Path(__file__).with_name("table.toml")


@dataclass(frozen=True, slots=True)
class Play:
    """How one command is played and what shows that it did what the text says.

    Attributes:
        run: The command as the page shows it, without its comment.
        not_here: Why it is not played; empty if it is.
        says: Regular expression that its output matches.
        lacks: Regular expression that its output does not match.
        code: Its exit code; 130 with ``until``.
        until: Regular expression: the command runs on until its output matches; Ctrl-C then ends it.
        stays: It goes on running until the end of the page.
        types: What is typed at its standard input.
        before: Shell commands that a reader runs before, on the box; what they print is no output of the command.
        stops: What runs in the background ends before.
        starts: Command of a daemon that a reader starts before, behind ``before``.
        then: Shell commands that succeed afterwards, on the same machine.
        keeps: Regular expression with a group for each word in capitals of later commands that ``before`` or the
            output tells.
    """

    run: str
    not_here: str = ""
    says: str = ""
    lacks: str = ""
    code: int = 0
    until: str = ""
    stays: bool = False
    types: str = ""
    before: str = ""
    stops: bool = False
    starts: str = ""
    then: str = ""
    keeps: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the documentation.

    Attributes:
        path: From the root of the repository.
        plays: One for each of its commands, in their order.
        documents: Whether the sample documents are stored on the box, in the collections `default` and `manuals`.
        daemon: Whether a daemon runs on the box when the page begins.
        before: Shell commands that a reader has run before, on the box.
    """

    path: str
    plays: tuple[Play, ...]
    documents: bool = True
    daemon: bool = True
    before: str = ""


def read() -> dict[str, Page]:
    """Returns the pages by their paths, in the order in which they are played."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return {path: Page(path, tuple(Play(**play) for play in page.pop("play")), **page) for path, page in table.items()}
