"""Files that are replaced as a whole and durably, and locks on files that several processes change."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edge_rag.errors import AccessError


def replace_file(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Replaces a file as a whole: a reader, and whoever comes after a loss of power, sees the old bytes or the new.

    Args:
        path: The file; made if it does not exist.
        content: What it is to hold.
        mode: Permissions, less those the process masks.

    Raises:
        OSError: It could not be written; what was there before is unharmed.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.unlink(missing_ok=True)
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Brings a file, or a folder's list of names, to the disk.

    Raises:
        OSError: It could not be, or the path is a symbolic link.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Holds a file's lock, against other processes; makes its folder, readable by its owner only, if there is none.

    Args:
        path: The file; it need not exist. The lock is another file beside it, since the file itself is replaced.

    Raises:
        AccessError: The lock cannot be had, or the body raised OSError.
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
