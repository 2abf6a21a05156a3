"""The commands that a page of the documentation shows, and the output that it says they have."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_FENCE: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMENT: Final = re.compile(r"\s+# (.*)$")
_OTHER: Final = re.compile(r"\bthe other machine\b")


@dataclass(frozen=True, slots=True)
class Command:
    """A command as a page shows it.

    Attributes:
        line: Its line in the page, from 1.
        text: The command, without its comment and with continued lines in one.
        elsewhere: It is for the other machine: the paragraph before its block or its comment says so.
        output: Of the last command of a block, lines of the ``text`` block behind it, a paragraph between at most.
    """

    line: int
    text: str
    elsewhere: bool
    output: tuple[str, ...] = ()


def commands(page: str) -> list[Command]:
    """Returns the commands of the ``sh`` blocks of a Markdown page in their order."""
    found: list[Command] = []
    end_of_commands = -1
    for fence in _FENCE.finditer(page):
        language, block = fence.groups()
        between = page[end_of_commands : fence.start()] if end_of_commands >= 0 else ""
        if language == "text" and end_of_commands >= 0 and "\n\n" not in between.strip():
            last = found.pop()
            found.append(Command(last.line, last.text, last.elsewhere, tuple(filter(None, block.split("\n")))))
        end_of_commands = -1
        if language != "sh":
            continue
        end_of_commands = fence.end()
        paragraph = page[: fence.start()].rstrip().rpartition("\n\n")[2]
        line = page.count("\n", 0, fence.start(2)) + 1
        for part in re.split(r"(?<!\\)\n", block.rstrip("\n")):
            comment = _COMMENT.search(part)
            text = re.sub(r"\s*\\\n\s*", " ", _COMMENT.sub("", part)).strip()
            said = paragraph + (comment[1] if comment else "")
            found.append(Command(line, text, bool(_OTHER.search(said))))
            line += part.count("\n") + 1
    return found
