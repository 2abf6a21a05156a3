"""Reads the console's files as text: what they import, export, load and say."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

CONSOLE: Final = Path(__file__).parents[3] / "edge_rag" / "console"

_STRING = r"""'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`"""
_REGEX = r"(?<=[(,=:\[!&|?{};\n])\s*/(?![/*])(?:[^/\\\n\[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/[a-z]*"
_TOKEN = re.compile(rf"(?P<kept>{_STRING}|{_REGEX})|//[^\n]*|/\*.*?\*/", re.DOTALL)
_IMPORT = re.compile(r"\b(?:import|export)\s+(?P<names>[^'\"();]*?)\s*from\s*['\"](?P<path>[^'\"]+)['\"]")
_BARE = re.compile(r"\bimport\s*['\"](?P<path>[^'\"]+)['\"]")
_LAZY = re.compile(r"\bimport\(\s*['\"](?P<path>[^'\"]+)['\"]\s*\)")
_EXPORT = re.compile(r"^export\s+(?:async\s+)?(?:function\s*\*?|const|let|class)\s*(?P<name>\w+)", re.MULTILINE)
_STYLE = re.compile(r"\bloadStyle\(\s*['\"](?P<path>[^'\"]+)['\"]")


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

    def imports(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for match in _IMPORT.finditer(self.code):
            names = re.findall(r"(\w+)(?:\s+as\s+\w+)?\s*(?:,|$)", match["names"].strip("{} \n"))
            found.setdefault(match["path"], set()).update(names)
        for match in _BARE.finditer(self.code):
            found.setdefault(match["path"], set())
        return found

    def lazy_imports(self) -> set[str]:
        return {match["path"] for match in _LAZY.finditer(self.code)}

    def exports(self) -> set[str]:
        return {match["name"] for match in _EXPORT.finditer(self.code)}

    def styles(self) -> set[str]:
        return {match["path"] for match in _STYLE.finditer(self.code)}

    def resolve(self, path: str) -> Path:
        return (self.path.parent / path).resolve()


def without_comments(source: str) -> str:
    """Returns a script without its comments."""
    return _TOKEN.sub(lambda match: match["kept"] or " ", source)


@cache
def modules() -> tuple[Module, ...]:
    found = sorted(CONSOLE.rglob("*.js"))
    return tuple(Module(path, without_comments(path.read_text(encoding="utf-8"))) for path in found)


def shipped() -> list[Path]:
    return sorted(path for path in CONSOLE.rglob("*") if path.is_file() and path.suffix not in {".py", ".pyc"})
