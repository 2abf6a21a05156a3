"""The bytes of stored documents as they were ingested, one file for each content."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import structlog

from edge_rag.core.atomic_file import sync
from edge_rag.core.documents.document import Content
from edge_rag.errors import StorageCorrupt, StorageError
from edge_rag.storage.database import Database
from edge_rag.storage.spool.files import SpooledContent, writing_to

ORIGINALS: Final = "originals"
"""Folder of a data directory."""

_PARTIAL: Final = ".part"
_NAME: Final = re.compile(r"[0-9a-f]{64}")
_KEPT: Final = "SELECT EXISTS (SELECT 1 FROM documents WHERE sha256 = ? AND original)"

log = structlog.get_logger(__name__)


class OriginalFile:
    """The bytes of a stored document, open for reading: they stay readable if the document is removed meanwhile.

    Args:
        sha256: SHA-256 of its bytes, lower-case hex.
    """

    def __init__(self, path: Path, size_bytes: int, sha256: str) -> None:
        """Opens and verifies it."""
        self.size_bytes = size_bytes
        try:
            self._file = path.open("rb")
        except FileNotFoundError as error:
            raise StorageCorrupt(f"{path} is missing; {_AGAIN}") from error
        except OSError as error:
            raise StorageError(f"{path} could not be read: {error.strerror}") from error
        try:
            whole = hashlib.file_digest(self._file, "sha256").hexdigest() == sha256
        except OSError as error:
            self._file.close()
            raise StorageError(f"{path} could not be read: {error.strerror}") from error
        if not whole:
            self._file.close()
            raise StorageCorrupt(f"{path} is damaged; {_AGAIN}")

    def read(self, position: int, size: int) -> bytes:
        """Returns up to ``size`` bytes from a position on; fewer at the end.

        Raises:
            StorageError: They could not be read.
        """
        try:
            return os.pread(self._file.fileno(), size, position)
        except OSError as error:
            raise StorageError(f"{self._file.name} could not be read: {error.strerror}") from error

    def close(self) -> None:
        """Closes it; idempotent."""
        self._file.close()


_AGAIN: Final = "delete the document and ingest it again to keep its original"


class Originals:
    """A folder with the bytes of stored documents, named by their SHA-256. May be used from any thread.

    A row of ``documents`` whose column ``original`` is set refers to the file of its ``sha256``. A file is durable
    before the row that refers to it is committed, and is removed after the last such row, so that a crash leaves at
    most a file too many, which the next start removes. Documents of the same bytes share one file.

    Args:
        folder: Created if it does not exist.
        keep: Whether bytes of documents are kept that are stored from now on.
    """

    def __init__(self, folder: Path, database: Database, keep: bool) -> None:
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StorageError(f"{folder} cannot be created: {error.strerror}") from error
        self.keep = keep
        self._folder = folder
        self._database = database
        self._changing = threading.Lock()
        self._added: list[str] = []
        self._pins = 0
        self._discarded: set[str] = set()

    @contextmanager
    def changing(self, content: Content | None) -> Iterator[None]:
        """Wraps the transaction that stores a document: no file is removed meanwhile that it refers to.

        Args:
            content: Bytes that ``add`` will be given; None for none.
        """
        if self.keep and isinstance(content, SpooledContent):
            with writing_to(content.path):
                sync(content.path)
        with self._changing:
            self._added = []
            try:
                yield
            except BaseException:
                self._remove_unused(self._added)
                raise

    def add(self, content: Content | None) -> bool:
        """Keeps the bytes of a document, durably; call it in a ``changing`` block, before the row is committed.

        The file that they arrived in gets a second name, so nothing is copied where the file system has hard links.
        """
        if not self.keep or content is None:
            return False
        if self.has(content.sha256, content.size_bytes):
            return True
        path, partial = self._folder / content.sha256, self._folder / (secrets.token_hex(16) + _PARTIAL)
        self._added.append(content.sha256)
        try:
            with writing_to(path):
                _place(content, partial)
                partial.rename(path)
                sync(self._folder)
        finally:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
        return True

    def has(self, sha256: str, size_bytes: int) -> bool:
        """Whether the bytes of a document are there, by size."""
        try:
            return (self._folder / sha256).stat().st_size == size_bytes
        except OSError:
            return False

    def open(self, sha256: str, size_bytes: int) -> OriginalFile:
        """Opens and verifies the bytes of a document; see ``OriginalFile``."""
        return OriginalFile(self._folder / sha256, size_bytes, sha256)

    def discard(self, *names: str) -> None:
        """Removes bytes that no document refers to any more, after the commit; after the last ``pinned`` block."""
        with self._changing:
            if self._pins:
                self._discarded.update(names)
            else:
                self._remove_unused(names)

    @contextmanager
    def pinned(self) -> Iterator[Path]:
        """Yields the folder; no file is removed until the end of the block."""
        with self._changing:
            self._pins += 1
        try:
            yield self._folder
        finally:
            with self._changing:
                self._pins -= 1
                if not self._pins:
                    discarded, self._discarded = self._discarded, set()
                    self._remove_unused(discarded)

    def recover(self) -> None:
        """Removes files that no document refers to, as a killed process may have left them; logs missing ones.

        Raises:
            StorageError: The data directory failed.
        """
        with self._database.reading() as connection:
            rows = connection.execute("SELECT DISTINCT sha256 FROM documents WHERE original").fetchall()
        kept = {sha256 for (sha256,) in rows}
        try:
            present = {path.name for path in self._folder.iterdir()}
        except OSError as error:
            raise StorageError(f"{self._folder} cannot be read: {error.strerror}") from error
        for name in present - kept:
            self._unlink(name)
        if kept - present:
            log.warning(
                "originals of stored documents are missing", folder=str(self._folder), files=len(kept - present)
            )

    def _remove_unused(self, names: Iterable[str]) -> None:
        with suppress(StorageError):  # ``recover`` removes them at the next start
            for name in names:
                with self._database.reading() as connection:
                    (kept,) = connection.execute(_KEPT, (name,)).fetchone()
                if not kept:
                    self._unlink(name)

    def _unlink(self, name: str) -> None:
        with suppress(OSError):  # the next start tries again
            (self._folder / name).unlink(missing_ok=True)


def damaged_originals(folder: Path, rows: Iterable[tuple[str, int]]) -> tuple[str, ...]:
    """Returns the SHA-256 of originals that are missing or damaged; reads every byte.

    Args:
        rows: SHA-256 and size of every original that documents refer to.
    """
    damaged: list[str] = []
    for sha256, size_bytes in rows:
        if not _NAME.fullmatch(sha256):
            damaged.append(sha256)
            continue
        try:
            OriginalFile(folder / sha256, size_bytes, sha256).close()
        except StorageError:
            damaged.append(sha256)
    return tuple(damaged)


def _place(content: Content, path: Path) -> None:
    """Gives content a new, synced file of its own, or a second name of the synced file that it is in."""
    if isinstance(content, SpooledContent):
        try:
            os.link(content.path, path)
        except FileNotFoundError:
            raise
        except OSError:  # a file system without hard links
            shutil.copyfile(content.path, path)
            path.chmod(0o600)
            sync(path)
        return
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content.read())
        file.flush()
        os.fsync(file.fileno())
