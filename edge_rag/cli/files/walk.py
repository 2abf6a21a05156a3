"""Which files a list of paths stands for."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_LEADS_OUT = "a link that leads out of the folder; give what it leads to by itself if you want it"


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file to hand over.

    Attributes:
        path: Where it is.
        name: Its name as a document: relative to the path that was given, with forward slashes.
    """

    path: Path
    name: str


@dataclass(frozen=True, slots=True)
class Unusable:
    """A path that was given or met and cannot be taken.

    Attributes:
        path: Where it is.
        name: What it would have been called.
        reason: Why not.
    """

    path: Path
    name: str
    reason: str


def find_files(paths: Iterable[Path]) -> Iterator[FoundFile | Unusable]:
    """Yields the files below the given paths, in order of name within each.

    Directories are walked; in them, hidden files and directories are left out, and symbolic links are followed only to
    files that lie inside the directory that was given. Links that lead out of it, sockets, pipes and devices are listed
    as unusable and never opened. A path given itself is taken whatever its name.
    """
    taken: dict[str, Path] = {}
    for given in paths:
        for entry in _below(given):
            if isinstance(entry, Unusable):
                yield entry
            elif entry.name in taken:
                yield Unusable(entry.path, entry.name, f"the same name as {taken[entry.name]}")
            else:
                taken[entry.name] = entry.path
                yield entry


def _below(given: Path) -> Iterator[FoundFile | Unusable]:
    if given.is_dir():
        yield from _walk(given)
    elif given.is_file():
        yield _named(given, given.name)
    elif given.exists():
        yield Unusable(given, given.name, _kind(given))
    else:
        yield Unusable(given, given.name, "no such file or directory")


def _walk(root: Path) -> Iterator[FoundFile | Unusable]:
    inside = root.resolve()
    broken: list[OSError] = []
    for folder, folders, names in os.walk(root, onerror=broken.append):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        links = [name for name in folders if Path(folder, name).is_symlink()]
        for name in sorted(name for name in (*names, *links) if not name.startswith(".")):
            path = Path(folder, name)
            relative = path.relative_to(root).as_posix()
            if path.is_symlink() and not _leads_inside(path, inside):
                yield _unusable(path, relative, _LEADS_OUT)
            elif path.is_file():
                yield _named(path, relative)
            elif not path.is_dir():
                yield _unusable(path, relative, _kind(path))
    for error in broken:
        path = Path(error.filename)
        yield Unusable(path, path.name, error.strerror or "cannot be read")


def _named(path: Path, name: str) -> FoundFile | Unusable:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return _unusable(path, name, "its name is not valid UTF-8")
    return FoundFile(path, name)


def _unusable(path: Path, name: str, reason: str) -> Unusable:
    return Unusable(path, os.fsencode(name).decode("utf-8", "replace"), reason)


def _leads_inside(link: Path, folder: Path) -> bool:
    try:
        return link.resolve().is_relative_to(folder)
    except (OSError, RuntimeError):  # a link that leads to itself leads nowhere
        return True


def _kind(path: Path) -> str:
    """What it is that is no regular file."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return "a link that leads nowhere" if path.is_symlink() else "cannot be read"
    kinds = ((stat.S_ISFIFO, "pipe"), (stat.S_ISSOCK, "socket"), (stat.S_ISCHR, "device"), (stat.S_ISBLK, "device"))
    return f"a {next((what for is_kind, what in kinds if is_kind(mode)), 'special file')}, not a regular file"
