"""Reads the console's files as text: what they say."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

CONSOLE: Final = Path(__file__).parents[3] / "edge_rag" / "console"

_STRING = r"""'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`"""
_REGEX = r"(?<=[(,=:\[!&|?{};\n])\s*/(?![/*])(?:[^/\\\n\[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/[a-z]*"
_TOKEN = re.compile(rf"(?P<kept>{_STRING}|{_REGEX})|//[^\n]*|/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True)
class Module:
    """A module of the console.

    Attributes:
        path: Where it is.
        code: Its source without comments.
    """

    path: Path
    code: str

    @property
    def name(self) -> str:
        return self.path.relative_to(CONSOLE).as_posix()


def without_comments(source: str) -> str:
    """Returns a script without its comments."""
    return _TOKEN.sub(lambda match: match["kept"] or " ", source)


@cache
def modules() -> tuple[Module, ...]:
    found = sorted(CONSOLE.rglob("*.js"))
    return tuple(Module(path, without_comments(path.read_text(encoding="utf-8"))) for path in found)


def shipped() -> list[Path]:
    return sorted(path for path in CONSOLE.rglob("*") if path.is_file() and path.suffix not in {".py", ".pyc"})
