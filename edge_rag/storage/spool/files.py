"""Bytes of documents that arrive or wait to be stored, one file each."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import secrets
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edge_rag.core.atomic_file import sync
from edge_rag.errors import NotReady, StorageCorrupt, StorageError, StorageFull
from edge_rag.storage.spool.shares import Claim, SpoolShares

_PARTIAL: Final = ".part"

_LINKED: Final = ""
"""Owner of bytes that are counted elsewhere."""


@dataclass(frozen=True, slots=True)
class SpooledContent:
    """The bytes of a document in a file; implements ``Content``.

    Attributes:
        sha256: SHA-256 of its bytes, lower-case hex.
    """

    path: Path
    size_bytes: int
    sha256: str

    def read(self) -> bytes:
        """Reads and verifies the bytes.

        Raises:
            StorageCorrupt: They are missing or damaged.
            StorageError: They could not be read.
        """
        try:
            content = self.path.read_bytes()
        except FileNotFoundError as error:
            raise StorageCorrupt("its bytes are missing from the spool; send it again") from error
        except OSError as error:
            raise StorageError(f"{self.path} could not be read: {error.strerror}") from error
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise StorageCorrupt("its bytes in the spool are damaged; send it again")
        return content


class IncomingFile:
    """A document that is being received; see ``Spool.receive``. May be used from any thread.

    Args:
        path: Its file, which the first ``write`` creates.
        claim: Its claim to the spool's bytes.

    Attributes:
        granted: Done when the spool has room for the document; it may not be written before.
    """

    def __init__(self, spool: Spool, path: Path, claim: Claim) -> None:
        self._spool = spool
        self._path = path
        self._claim = claim
        self._lock = threading.Lock()
        self._file: io.BufferedWriter | None = None
        self._digest = hashlib.sha256()
        self._size = 0
        self._ended = False
        self.granted: Future[None] = Future()

    def write(self, piece: bytes) -> None:
        """Writes the next bytes."""
        with self._lock, writing_to(self._path):
            self._open().write(piece)
            self._digest.update(piece)
            self._size += len(piece)

    def finish(self) -> SpooledContent:
        """Ends the document. It is on disk but not durable; see ``Spool.commit``."""
        with self._lock:
            with writing_to(self._path):
                self._open().close()
            self._ended = True
        self._spool.shrink(self._claim, self._size)
        return SpooledContent(self._path, self._size, self._digest.hexdigest())

    def discard(self) -> None:
        """Deletes the document and gives its claim up, unless it was committed; idempotent."""
        with self._lock:
            self._ended = True
            if self._file is not None:
                with contextlib.suppress(OSError):  # writing the buffer may find the disk full
                    self._file.close()
        self._spool.abandon(self._path)

    def _open(self) -> io.BufferedWriter:
        if self._ended:
            raise StorageError("the document was discarded while it was received")
        if self._file is None:
            self._file = os.fdopen(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
        return self._file


class Spool:
    """A folder of files with the bytes of documents. May be used from any thread.

    A document is received into a partial file and, for a job, committed: synced, renamed, and the folder synced. Both
    take a share of the same bytes (``SpoolShares``).

    Args:
        folder: Created if it does not exist.
        capacity_bytes: Most bytes of all documents together. A larger document is taken if there is no other.
    """

    def __init__(self, folder: Path, capacity_bytes: int) -> None:
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StorageError(f"{folder} cannot be created: {error.strerror}") from error
        self._folder = folder
        self._lock = threading.Lock()
        self._shares = SpoolShares(capacity_bytes)
        self._claims: dict[str, Claim] = {}
        self._incoming: dict[Claim, IncomingFile] = {}
        self._draining = False
        self._pins = 0
        self._discarded: set[str] = set()

    @property
    def used_bytes(self) -> int:
        with self._lock:
            return self._shares.used_bytes

    def receive(self, owner: str, size_bytes: int) -> IncomingFile:
        """Begins a document, which ``IncomingFile.discard`` must end unless it is committed.

        Returns:
            The file. ``granted`` is done when its owner's share has room for it; it raises NotReady if the daemon
            drains before.
        """
        name = secrets.token_hex(16) + _PARTIAL
        claim = Claim(owner, size_bytes)
        incoming = IncomingFile(self, self._folder / name, claim)
        with self._lock:
            self._claims[name] = claim
            self._incoming[claim] = incoming
            granted = self._shares.request(claim)
        self._announce(granted)
        if self._draining:
            self._refuse(incoming)
        return incoming

    def add(self, owner: str, content: bytes) -> SpooledContent:
        """Receives bytes that are at hand.

        Raises:
            StorageFull: There is no room for them now, or the disk is full.
        """
        incoming = self.receive(owner, len(content))
        try:
            if not incoming.granted.done():
                raise StorageFull(
                    f"documents that wait to be stored take {self.used_bytes:,} bytes, the limit is "
                    f"{self._shares.capacity_bytes:,} (ingest.spool_mib), shared among those who upload; send the rest "
                    "when these are stored"
                )
            incoming.write(content)
            return incoming.finish()
        except BaseException:
            incoming.discard()
            raise

    def link(self, content: SpooledContent) -> SpooledContent:
        """Receives the bytes of a complete file in the data directory by a further name for them, without a copy.

        They are counted where that file is, so that they take the least share of the spool.

        Raises:
            StorageCorrupt: The file is missing.
        """
        name = secrets.token_hex(16) + _PARTIAL
        with self._lock:
            self._claims[name] = claim = Claim(_LINKED, 0)
            self._shares.add(claim)
        try:
            with writing_to(self._folder / name):
                os.link(content.path, self._folder / name)
        except BaseException as error:
            self._remove(name)
            if isinstance(error.__cause__, FileNotFoundError):
                raise StorageCorrupt(f"{content.path} is missing; send the file again") from error
            raise
        return SpooledContent(self._folder / name, content.size_bytes, content.sha256)

    def commit(self, content: SpooledContent) -> str:
        """Makes a received document durable; from then on it stays until ``discard``.

        Raises:
            StorageError: The disk failed, or the document was discarded.
        """
        partial = content.path
        name = partial.name.removesuffix(_PARTIAL)
        with writing_to(partial):
            sync(partial)
        with self._lock:
            claim = self._claims.pop(partial.name, None)
            if claim is None:
                raise StorageError("the document was discarded while it was received")
            self._claims[name] = claim
            self._incoming.pop(claim, None)
        try:
            with writing_to(partial):
                partial.rename(self._folder / name)
                sync(self._folder)
        except BaseException:
            self._remove(partial.name)
            self._remove(name)
            raise
        return name

    def open(self, name: str, size_bytes: int, sha256: str) -> SpooledContent:
        """Returns the bytes of a committed document, not read yet."""
        return SpooledContent(self._folder / name, size_bytes, sha256)

    def discard(self, *names: str) -> None:
        with self._lock:
            if self._pins:
                self._discarded.update(names)
                return
        for name in names:
            self._remove(name)

    def abandon(self, path: Path) -> None:
        """Deletes a received document unless it was committed."""
        self._remove(path.name)

    def shrink(self, claim: Claim, size_bytes: int) -> None:
        with self._lock:
            granted = self._shares.shrink(claim, size_bytes)
        self._announce(granted)

    def keep_only(self, documents: Mapping[str, tuple[str, int]]) -> None:
        """Deletes all other files, as a killed process may have left them.

        Args:
            documents: Owner and size in bytes of each committed document, by name.
        """
        with self._lock:
            for name, (owner, size_bytes) in documents.items():
                claim = Claim(_LINKED, 0) if _has_further_names(self._folder / name) else Claim(owner, size_bytes)
                self._claims[name] = claim
                self._shares.add(claim)
        for path in self._folder.iterdir():
            if path.name not in documents:
                self._remove(path.name)

    def drain(self) -> None:
        with self._lock:
            self._draining = True
            waiting = tuple(self._incoming.values())
        for incoming in waiting:
            self._refuse(incoming)

    @contextmanager
    def pinned(self) -> Iterator[Path]:
        """Yields the folder; no committed document is deleted until the end of the block."""
        with self._lock:
            self._pins += 1
        try:
            yield self._folder
        finally:
            with self._lock:
                self._pins -= 1
                discarded, self._discarded = (self._discarded, set()) if not self._pins else (set(), self._discarded)
            for name in discarded:
                self._remove(name)

    def _remove(self, name: str) -> None:
        with contextlib.suppress(OSError):  # ``keep_only`` removes it at the next start
            (self._folder / name).unlink(missing_ok=True)
        with self._lock:
            claim = self._claims.pop(name, None)
            if claim is None:
                return
            self._incoming.pop(claim, None)
            granted = self._shares.release(claim)
        self._announce(granted)

    def _announce(self, granted: list[Claim]) -> None:
        for claim in granted:
            with self._lock:
                incoming = self._incoming.get(claim)
            if incoming is not None:
                with contextlib.suppress(InvalidStateError):  # whoever waited has gone and discards it
                    incoming.granted.set_result(None)

    def _refuse(self, incoming: IncomingFile) -> None:
        with contextlib.suppress(InvalidStateError):  # it was granted
            incoming.granted.set_exception(NotReady("the daemon is shutting down"))


@contextmanager
def writing_to(path: Path) -> Iterator[None]:
    """Translates errors of the disk.

    Raises:
        StorageFull: No space is left.
        StorageError: The disk failed.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise StorageFull(
                f"no space is left in {path.parent} for a document; free some space and send it again. Documents "
                "accepted before are kept"
            ) from error
        raise StorageError(f"{path} could not be written: {error.strerror}; the document was not accepted") from error


def _has_further_names(path: Path) -> bool:
    try:
        return path.stat().st_nlink > 1
    except OSError:  # it is missing, which its job finds out
        return False
