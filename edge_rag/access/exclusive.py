"""Changing a file that other processes change too."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edge_rag.errors import AccessError


@contextmanager
def exclusively(path: Path) -> Iterator[None]:
    """Holds a file's lock; makes its folder, which only its owner can look into.

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
