"""Documents that were accepted and are not stored yet, a file each."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edge_rag.errors import StorageCorrupt, StorageError, StorageFull


class Spool:
    """A folder of documents' bytes. May be used from any thread.

    A file is written aside, synced and renamed, and the folder synced, before anyone hears of it.

    Args:
        folder: Made if it does not exist.
    """

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StorageError(f"{folder} cannot be made: {error.strerror}") from error
        self._folder = folder
        self._lock = threading.Lock()
        self._pins = 0
        self._unwanted: set[str] = set()

    def put(self, content: bytes) -> str:
        """Writes a document's bytes; durable on return.

        Returns:
            The name to ask for them by.

        Raises:
            StorageFull: No room is left.
            StorageError: The disk failed.
        """
        name = secrets.token_hex(16)
        path, partial = self._folder / name, self._folder / f"{name}.part"
        try:
            with partial.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            partial.rename(path)
            self._sync()
        except OSError as error:
            for left in (partial, path):
                with contextlib.suppress(OSError):
                    left.unlink(missing_ok=True)
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise StorageFull(
                    f"no room is left in {self._folder} for a document of {len(content):,} bytes; free some space and "
                    "send it again. What was accepted before is kept"
                ) from error
            raise StorageError(f"{path} could not be written: {error.strerror}; the document was not taken") from error
        return name

    def get(self, name: str, sha256: str) -> bytes:
        """Reads a document's bytes.

        Raises:
            StorageCorrupt: They are missing or not what was written.
            StorageError: They could not be read.
        """
        try:
            content = (self._folder / name).read_bytes()
        except FileNotFoundError as error:
            raise StorageCorrupt("its bytes are gone from the spool; send it again") from error
        except OSError as error:
            raise StorageError(f"{self._folder / name} could not be read: {error.strerror}") from error
        if hashlib.sha256(content).hexdigest() != sha256:
            raise StorageCorrupt("its bytes in the spool are damaged; send it again")
        return content

    def discard(self, name: str) -> None:
        """Removes a document's bytes, or does so once nobody needs the folder as it is."""
        with self._lock:
            if self._pins:
                self._unwanted.add(name)
                return
        self._unlink(name)

    def keep_only(self, names: frozenset[str]) -> None:
        """Removes every file but these: what a killed process left behind."""
        for path in self._folder.iterdir():
            if path.name not in names:
                self._unlink(path.name)

    @contextmanager
    def pinned(self) -> Iterator[Path]:
        """Keeps what is in the folder until the end of the block; yields the folder."""
        with self._lock:
            self._pins += 1
        try:
            yield self._folder
        finally:
            with self._lock:
                self._pins -= 1
                unwanted, self._unwanted = (self._unwanted, set()) if not self._pins else (set(), self._unwanted)
            for name in unwanted:
                self._unlink(name)

    def _unlink(self, name: str) -> None:
        with contextlib.suppress(OSError):  # what cannot be removed now is removed at the next start
            (self._folder / name).unlink(missing_ok=True)

    def _sync(self) -> None:
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
