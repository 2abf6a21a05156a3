"""Bytes of queued documents, one file each."""

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
    """A folder of files with the bytes of documents. May be used from any thread.

    A file is written under another name, synced and renamed, and the folder synced, before ``put`` returns.

    Args:
        folder: Created if it does not exist.
    """

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StorageError(f"{folder} cannot be created: {error.strerror}") from error
        self._folder = folder
        self._lock = threading.Lock()
        self._pins = 0
        self._discarded: set[str] = set()

    def put(self, content: bytes) -> str:
        """Writes the bytes of a document; durable on return.

        Returns:
            The name to read them by.

        Raises:
            StorageFull: No space is left.
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
                    f"no space is left in {self._folder} for a document of {len(content):,} bytes; free some space and "
                    "send it again. Documents accepted before are kept"
                ) from error
            raise StorageError(
                f"{path} could not be written: {error.strerror}; the document was not accepted"
            ) from error
        return name

    def get(self, name: str, sha256: str) -> bytes:
        """Reads the bytes of a document.

        Raises:
            StorageCorrupt: They are missing or damaged.
            StorageError: They could not be read.
        """
        try:
            content = (self._folder / name).read_bytes()
        except FileNotFoundError as error:
            raise StorageCorrupt("its bytes are missing from the spool; send it again") from error
        except OSError as error:
            raise StorageError(f"{self._folder / name} could not be read: {error.strerror}") from error
        if hashlib.sha256(content).hexdigest() != sha256:
            raise StorageCorrupt("its bytes in the spool are damaged; send it again")
        return content

    def discard(self, name: str) -> None:
        """Deletes the bytes of a document, or does so after the last ``pinned`` block."""
        with self._lock:
            if self._pins:
                self._discarded.add(name)
                return
        self._unlink(name)

    def keep_only(self, names: frozenset[str]) -> None:
        """Deletes all other files, as a killed process may have left them."""
        for path in self._folder.iterdir():
            if path.name not in names:
                self._unlink(path.name)

    @contextmanager
    def pinned(self) -> Iterator[Path]:
        """Yields the folder; no file in it is deleted until the end of the block."""
        with self._lock:
            self._pins += 1
        try:
            yield self._folder
        finally:
            with self._lock:
                self._pins -= 1
                discarded, self._discarded = (self._discarded, set()) if not self._pins else (set(), self._discarded)
            for name in discarded:
                self._unlink(name)

    def _unlink(self, name: str) -> None:
        with contextlib.suppress(OSError):  # ``keep_only`` removes it at the next start
            (self._folder / name).unlink(missing_ok=True)

    def _sync(self) -> None:
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
