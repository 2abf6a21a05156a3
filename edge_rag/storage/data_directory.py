"""Exclusive and private use of a data directory by one daemon."""

from __future__ import annotations

import fcntl
import os
import pwd
import stat
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from edge_rag.errors import DataDirectoryInUse, DataDirectoryNotPrivate, StorageError

PRIVATE_UMASK: Final = 0o077
"""File mode creation mask of every process that writes to a data directory: no rights for group and others."""

_OTHERS = 0o077
_ROOT = 0


class DataDirectory:
    """Locks a data directory until it is closed or the process ends.

    The lock is the kernel's (``flock``), so a killed daemon leaves nothing to clean up. The process id in the lock file
    is for the error message only.
    """

    def __init__(self, path: Path) -> None:
        """Locks the directory; creates it if necessary and makes it private."""
        self.path = path
        lock = path / "lock"
        make_private(path)
        try:
            self._descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _unusable(path, error) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError as error:
            holder = os.pread(self._descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._descriptor)
            raise DataDirectoryInUse(
                f"the data directory {path} is in use by another daemon (process {holder}); stop that daemon or choose "
                "another directory"
            ) from error
        except OSError as error:
            os.close(self._descriptor)
            raise StorageError(f"the data directory {path} cannot be locked: {error.strerror}") from error

    def close(self) -> None:
        """Releases the directory; idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def make_private(path: Path) -> int:
    """Creates a data directory if necessary, and takes all rights to it and its contents from other users.

    Rights are taken from the directory first, so that nobody changes it meanwhile. Files that have further names
    elsewhere keep their mode, because it is the mode of those names too, and files of root keep theirs.

    Returns:
        Number of entries that other users had rights to, the directory included; 0 if it was private itself.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        was_open = _take_rights(path, path.stat(), (os.geteuid(),))
        owners = (os.geteuid(), _ROOT)
        entries = sum(_take_rights(entry, found, owners) for entry, found in _entries(path))
    except OSError as error:
        raise _unusable(path, error) from error
    return 1 + entries if was_open else 0


def _entries(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            with suppress(FileNotFoundError):  # removed meanwhile, by a command that needs no lock
                entry = Path(folder) / name
                yield entry, entry.lstat()


def _take_rights(path: Path, found: os.stat_result, owners: Collection[int]) -> bool:
    """Takes the rights of group and others from an entry; returns whether they had any."""
    user = os.geteuid()
    if found.st_uid not in owners:
        raise DataDirectoryNotPrivate(
            f"{path} belongs to the user {_name(found.st_uid)} and edge-rag runs as {_name(user)}; run it as "
            f"{_name(found.st_uid)}, or give the whole data directory to {_name(user)} with `chown -R`"
        )
    if found.st_uid != user:
        return False
    shared = found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode)
    if stat.S_ISLNK(found.st_mode) or shared or not found.st_mode & _OTHERS:
        return False
    try:
        path.chmod(stat.S_IMODE(found.st_mode) & ~_OTHERS)
        remaining = path.stat().st_mode & _OTHERS
        reason = "its file system does not keep modes"
    except OSError as error:
        remaining, reason = _OTHERS, error.strerror or str(error)
    if remaining:
        raise DataDirectoryNotPrivate(
            f"{path} is open to other users and its mode cannot be changed ({reason}); run `chmod -R go= ` on the data "
            "directory, or choose another directory"
        )
    return True


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def _unusable(path: Path, error: OSError) -> StorageError:
    return StorageError(f"the data directory {path} cannot be used: {error.strerror}")
