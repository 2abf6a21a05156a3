"""Which files of a folder are taken: patterns of options and of the folder's own ``.edgeragignore``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from edge_rag.errors import ConfigurationError

IGNORE_FILE: Final = ".edgeragignore"
_MOST_BYTES: Final = 1 << 20

_SYSTEM: Final = frozenset(map(Path, ("/", "/home", "/opt", "/run", "/usr", "/var")))
_WHOLE_SYSTEM: Final = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/sbin", "/sys")
_WHOLE_SYSTEM_BELOW_USR: Final = ("/usr/bin", "/usr/lib", "/usr/libexec", "/usr/sbin")


def is_system_folder(folder: Path) -> bool:
    """Whether a folder holds the system's files, or all of a machine, and not documents that somebody collected."""
    resolved = folder.resolve()
    return resolved in _SYSTEM or any(
        resolved.is_relative_to(each) for each in (*_WHOLE_SYSTEM, *_WHOLE_SYSTEM_BELOW_USR)
    )


@dataclass(frozen=True, slots=True)
class _Rule:
    """A pattern in the form of gitignore: the last one that matches a name decides."""

    matches: re.Pattern[str]
    takes: bool


@dataclass(frozen=True, slots=True)
class FileSelection:
    """Which files below a folder are taken.

    Patterns have the form of gitignore: ``*`` and ``?`` stand for characters of one name, ``**`` for any folders, a
    ``/`` at the end names folders only, and a pattern with another ``/`` starts at the folder; any other matches at
    every depth. What matches a folder matches everything in it.

    Attributes:
        include: A file must match one of these patterns; without patterns all are taken.
        rules: Skip files or take them again; the last rule that matches decides.
    """

    include: tuple[re.Pattern[str], ...] = ()
    rules: tuple[_Rule, ...] = ()

    @classmethod
    def of(cls, include: Iterable[str], exclude: Iterable[str]) -> Self:
        rules = tuple(_Rule(_compiled(pattern), takes=False) for pattern in exclude)
        return cls(tuple(map(_compiled, include)), rules)

    def within(self, folder: Path) -> Self:
        """Returns this selection with the rules of a folder's ``.edgeragignore``, where it has one.

        Raises:
            ConfigurationError: The file cannot be read.
        """
        path = folder / IGNORE_FILE
        try:
            with path.open("rb") as file:
                text = file.read(_MOST_BYTES).decode()
        except FileNotFoundError:
            return self
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{path} cannot be read: {error}") from error
        lines = (line.strip() for line in text.splitlines())
        rules = (_rule(line) for line in lines if line and not line.startswith("#"))
        return type(self)(self.include, (*rules, *self.rules))

    def takes(self, name: str, *, folder: bool = False) -> bool:
        """Whether a file is taken, or a folder is walked.

        Args:
            name: Its path relative to the folder, with forward slashes.
        """
        shown = f"{name}/" if folder else name
        taken = next((rule.takes for rule in reversed(self.rules) if rule.matches.fullmatch(shown)), True)
        return taken and (folder or not self.include or any(each.fullmatch(shown) for each in self.include))


def _rule(line: str) -> _Rule:
    return _Rule(_compiled(line.removeprefix("!")), takes=line.startswith("!"))


def _compiled(pattern: str) -> re.Pattern[str]:
    anchored = "/" in pattern.rstrip("/")
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern.strip("/"))
    wild = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    body = "".join(wild.get(part) or re.escape(part) for part in parts)
    end = "/.*" if pattern.endswith("/") else "(?:/.*)?"
    return re.compile(f"{'' if anchored else '(?:.*/)?'}{body}{end}")
