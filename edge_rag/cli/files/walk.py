"""Finds the files below a list of paths."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from edge_rag.cli.files.selection import FileSelection

_LEADS_OUT = "a symbolic link out of the folder; name its target to include it"


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file to upload.

    Attributes:
        name: Its name as a document: relative to the given path, with forward slashes.
    """

    path: Path
    name: str


@dataclass(frozen=True, slots=True)
class UnusableFile:
    """A path that cannot be uploaded."""

    path: Path
    name: str
    reason: str


def find_files(paths: Iterable[Path], selection: FileSelection | None = None) -> Iterator[FoundFile | UnusableFile]:
    """Yields the files below the given paths, in order of name within each.

    Directories are walked without hidden files and directories; symbolic links are followed only to files inside the
    given directory. Links out of it, sockets, pipes and devices are reported as unusable and never opened. A path that
    is given explicitly is included even if it is hidden or not selected.

    Args:
        selection: Which files of the directories are taken, besides their own ``.edgeragignore``; None for all.
    """
    by_name: dict[str, Path] = {}
    for given in paths:
        for entry in _below(given, selection or FileSelection()):
            if isinstance(entry, UnusableFile):
                yield entry
            elif entry.name in by_name:
                yield UnusableFile(entry.path, entry.name, f"the same name as {by_name[entry.name]}")
            else:
                by_name[entry.name] = entry.path
                yield entry


def _below(given: Path, selection: FileSelection) -> Iterator[FoundFile | UnusableFile]:
    if given.is_dir():
        yield from _walk(given, selection.within(given))
    elif given.is_file():
        yield _named(given, given.name)
    elif given.exists():
        yield UnusableFile(given, given.name, _kind(given))
    else:
        yield UnusableFile(given, given.name, "no such file or directory")


def _walk(root: Path, selection: FileSelection) -> Iterator[FoundFile | UnusableFile]:
    inside = root.resolve()
    broken: list[OSError] = []
    for folder, folders, names in os.walk(root, onerror=broken.append):
        inner = Path(folder).relative_to(root)
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".") and selection.takes((inner / name).as_posix(), folder=True)
        )
        links = [name for name in folders if Path(folder, name).is_symlink()]
        for name in sorted(name for name in (*names, *links) if not name.startswith(".")):
            path = Path(folder, name)
            relative = path.relative_to(root).as_posix()
            if not selection.takes(relative):
                continue
            if path.is_symlink() and not _leads_inside(path, inside):
                yield _unusable(path, relative, _LEADS_OUT)
            elif path.is_file():
                yield _named(path, relative)
            elif not path.is_dir():
                yield _unusable(path, relative, _kind(path))
    for error in broken:
        path = Path(error.filename)
        yield UnusableFile(path, path.name, error.strerror or "cannot be read")


def _named(path: Path, name: str) -> FoundFile | UnusableFile:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return _unusable(path, name, "its name is not valid UTF-8")
    return FoundFile(path, name)


def _unusable(path: Path, name: str, reason: str) -> UnusableFile:
    return UnusableFile(path, os.fsencode(name).decode("utf-8", "replace"), reason)


def _leads_inside(link: Path, folder: Path) -> bool:
    try:
        return link.resolve().is_relative_to(folder)
    except (OSError, RuntimeError):  # a link to itself has no target
        return True


def _kind(path: Path) -> str:
    try:
        mode = path.stat().st_mode
    except OSError:
        return "a broken symbolic link" if path.is_symlink() else "cannot be read"
    kinds = ((stat.S_ISFIFO, "pipe"), (stat.S_ISSOCK, "socket"), (stat.S_ISCHR, "device"), (stat.S_ISBLK, "device"))
    return f"a {next((kind for is_kind, kind in kinds if is_kind(mode)), 'special file')}, not a regular file"
