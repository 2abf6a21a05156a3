"""Looks at a folder: which files it has and which of them are not to be touched."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from edge_rag.cli.files.watched_folder import Look
from edge_rag.errors import ConfigurationError


def look_at(root: Path, most_bytes: int) -> dict[str, Look]:
    """Returns the files below a folder by name: relative to it, with forward slashes. Nothing is opened.

    Hidden files and folders are left out. Symbolic links are followed only to files inside the folder; what points out
    of it, FIFOs, sockets, devices, files that are too large and names that are not UTF-8 are refused.

    Args:
        root: The folder.
        most_bytes: Largest file.

    Raises:
        ConfigurationError: The folder is gone or cannot be read; an unreachable share is no empty one.
    """
    try:
        inside = root.resolve(strict=True)
        with os.scandir(root):
            pass
        return dict(_files(root, root, inside, most_bytes))
    except OSError as error:
        raise ConfigurationError(f"{error.filename or root} cannot be read: {error.strerror}") from error


def _files(folder: Path, root: Path, inside: Path, most_bytes: int) -> Iterator[tuple[str, Look]]:
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.name.startswith("."):
                continue
            path = Path(entry.path)
            name = path.relative_to(root).as_posix()
            if entry.is_dir(follow_symlinks=False):
                yield from _files(path, root, inside, most_bytes)
                continue
            try:
                yield name.encode("utf-8", "replace").decode(), _look(path, name, inside, most_bytes)
            except FileNotFoundError:
                continue  # it went while it was looked at, or is a link to nothing


def _look(path: Path, name: str, inside: Path, most_bytes: int) -> Look:
    link = path.is_symlink()
    state = path.stat()
    return Look(state.st_size, state.st_mtime_ns, state.st_ino, _problem(path, name, state, link, inside, most_bytes))


def _problem(path: Path, name: str, state: os.stat_result, link: bool, inside: Path, most_bytes: int) -> str:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return "its name is not valid UTF-8"
    if link and not path.resolve().is_relative_to(inside):
        return "a symbolic link out of the folder"
    if not stat.S_ISREG(state.st_mode):
        return "not a regular file"
    if state.st_size > most_bytes:
        return f"has {state.st_size:,} bytes, at most {most_bytes:,} are handed over (--most-mib)"
    return ""
