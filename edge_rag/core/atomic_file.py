"""Files that are replaced atomically and durably, and file locks between processes."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from edge_rag.errors import AccessError


def replace_file(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Replaces a file atomically: readers see the old bytes or the new ones, also after a loss of power.

    Args:
        mode: Permissions, before the process's umask.

    Raises:
        OSError: It could not be written; the old content is unharmed.
    """
    with new_file(path, mode) as file:
        file.write(content)


@contextmanager
def new_file(path: Path, mode: int) -> Iterator[BinaryIO]:
    """Yields a file that gets its name, in place of one that has it, when the block has ended and all of it is synced.

    If the block raises, the file is deleted. Its name until then is ``file.name``.

    Args:
        mode: Permissions, before the process's umask.

    Raises:
        OSError: It cannot be written.
    """
    partial = path.with_name(f".{path.name}.partial")
    partial.unlink(missing_ok=True)
    try:
        with open(partial, "xb", opener=lambda name, flags: os.open(name, flags | os.O_CLOEXEC, mode)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync(path.absolute().parent)


def sync(path: Path) -> None:
    """Syncs a file, or the entries of a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Locks a file against other processes; creates its folder, readable by its owner only, if necessary.

    Args:
        path: The file; it need not exist. The lock is another file beside it, because the file itself is replaced.

    Raises:
        AccessError: The lock could not be taken, or the block raised OSError.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(path.with_name(f".{path.name}.lock"), os.O_WRONLY | os.O_CREAT, 0o600)
    except OSError as error:
        raise AccessError(f"{path}: cannot be changed: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    except OSError as error:
        raise AccessError(f"{path}: cannot be changed: {error.strerror}") from error
    finally:
        os.close(lock)
