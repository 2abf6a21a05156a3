"""Copies files out of an untrusted folder: regular files with known names only."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from edge_rag.errors import ModelFolderInvalid, StorageFull
from edge_rag.model_store.convert.subprocess import AddProgress

_BLOCK_BYTES = 1 << 20
_MAX_ENTRIES = 4096
_RESERVE_BYTES = 64 << 20


def plain_files(folder: Path, ignored: frozenset[str] = frozenset()) -> dict[str, int]:
    """Lists the files of a folder and its subfolders with their sizes.

    Args:
        folder: The folder.
        ignored: Names of subfolders to skip.

    Raises:
        ModelFolderInvalid: There is a link, a device, a pipe or a socket, or too many entries, or something cannot be
            read.
    """
    found: dict[str, int] = {}
    pending = [folder]
    entries = 0
    while pending:
        current = pending.pop()
        try:
            listing = sorted(os.scandir(current), key=lambda entry: entry.name)
        except OSError as error:
            raise ModelFolderInvalid(f"{current} cannot be read: {error.strerror}") from error
        for entry in listing:
            entries += 1
            path = Path(entry.path).relative_to(folder).as_posix()
            if entries > _MAX_ENTRIES:
                raise ModelFolderInvalid(f"{folder}: has more than {_MAX_ENTRIES} entries; this is not a model")
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                raise ModelFolderInvalid(f"{folder}: {path} is a link; copy the folder with `cp -rL` and add the copy")
            if stat.S_ISDIR(status.st_mode):
                if entry.name not in ignored:
                    pending.append(Path(entry.path))
            elif stat.S_ISREG(status.st_mode):
                found[path] = status.st_size
            else:
                raise ModelFolderInvalid(f"{folder}: {path} is not a plain file; remove it")
    return found


def copy_files(folder: Path, files: dict[str, int], target: Path, progress: AddProgress) -> None:
    """Copies files without following links that replaced them meanwhile.

    Args:
        folder: Their folder.
        files: Their paths and sizes.
        target: An empty folder.
        progress: Receives the bytes of every block.

    Raises:
        ModelFolderInvalid: A file has changed.
        StorageFull: There is no space.
    """
    check_space(target, sum(files.values()))
    for path, size in files.items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(folder / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise ModelFolderInvalid(f"{folder}: {path} cannot be read: {error.strerror}") from error
        with os.fdopen(descriptor, "rb", buffering=0) as source, (target / path).open("xb") as copy:
            if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
                raise ModelFolderInvalid(f"{folder}: {path} is not a plain file; remove it")
            remaining = size
            while block := source.read(min(_BLOCK_BYTES, remaining + 1)):
                remaining -= len(block)
                if remaining < 0:
                    break
                copy.write(block)
                progress.advance(len(block))
        if remaining:
            raise ModelFolderInvalid(f"{folder}: {path} changed while it was copied; try again")


def check_space(folder: Path, needed: int) -> None:
    """Checks that a file system has enough space.

    Raises:
        StorageFull: It has not; the message has the missing amount.
    """
    free = shutil.disk_usage(folder).free
    if free < needed + _RESERVE_BYTES:
        raise StorageFull(
            f"{folder} has {free >> 20} MiB left, {(needed + _RESERVE_BYTES) >> 20} MiB are needed; nothing was added"
        )


def matching(names: Iterable[str], patterns: tuple[str, ...]) -> list[str]:
    """Returns the names without a folder that match one of the patterns."""
    return [name for name in names if "/" not in name and any(fnmatchcase(name, pattern) for pattern in patterns)]
