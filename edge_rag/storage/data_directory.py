"""Exclusive use of a data directory by one daemon."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from edge_rag.errors import DataDirectoryInUse, StorageError


class DataDirectory:
    """Locks a data directory until it is closed or the process ends.

    The lock is the kernel's (``flock``), so a killed daemon leaves nothing to clean up. The process id in the lock file
    is for the error message only.

    Attributes:
        path: The directory.
    """

    def __init__(self, path: Path) -> None:
        """Locks the directory; creates it, readable by its owner only, if necessary.

        Raises:
            DataDirectoryInUse: Another daemon holds it.
            StorageError: It cannot be created or written to.
        """
        self.path = path
        lock = path / "lock"
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StorageError(f"the data directory {path} cannot be used: {error.strerror}") from error
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
