"""Files that are replaced whole or not at all, and are on the disk when that is said."""

from __future__ import annotations

import os
from pathlib import Path


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
