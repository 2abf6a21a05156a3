"""Which files a list of paths stands for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path


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
    files that lie inside the directory that was given. A path given itself is taken whatever its name.
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
        yield Unusable(given, given.name, "not a regular file")
    else:
        yield Unusable(given, given.name, "no such file or directory")


def _walk(root: Path) -> Iterator[FoundFile | Unusable]:
    inside = root.resolve()
    broken: list[OSError] = []
    for folder, folders, names in os.walk(root, onerror=broken.append):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(name for name in names if not name.startswith(".")):
            path = Path(folder, name)
            if not path.is_symlink() or path.resolve().is_relative_to(inside):
                relative = path.relative_to(root).as_posix()
                yield _named(path, relative) if path.is_file() else Unusable(path, relative, "not a regular file")
    for error in broken:
        path = Path(error.filename)
        yield Unusable(path, path.name, error.strerror or "cannot be read")


def _named(path: Path, name: str) -> FoundFile | Unusable:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        readable = os.fsencode(name).decode("utf-8", "replace")
        return Unusable(path, readable, "its name is not valid UTF-8")
    return FoundFile(path, name)
