"""Backups that are kept in the data directory, and when the latest backup was completed, wherever it went."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import structlog

from edge_rag.core.atomic_file import replace_file, sync
from edge_rag.core.monitoring.status import BackupWay, CompletedBackup, StoredBackup
from edge_rag.errors import FileNotFound, RequestCancelled, StorageError, StorageFull

BACKUPS: Final = "backups"
"""Their folder in the data directory."""

_NAME: Final = re.compile(r"[0-9]{8}T[0-9]{6}Z\.edge-rag")
_TIME: Final = "%Y%m%dT%H%M%SZ.edge-rag"
_LAST: Final = "last.json"
_PARTIAL: Final = "new.part"
_SCRATCH: Final = "restored.part"
_BLOCK_BYTES: Final = 1 << 18
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

log = structlog.get_logger()


def is_backup_name(name: str) -> bool:
    """Whether a name is one that a stored backup can have: the time of its completion, as in
    ``20261123T090501Z.edge-rag``.
    """
    return _NAME.fullmatch(name) is not None


class StoredBackups:
    """The backups in a folder. May be used from any thread.

    Args:
        clock: Wall clock, UTC.
    """

    def __init__(self, folder: Path, keep: int, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._folder = folder
        self.keep = keep
        self._clock = clock
        self._last = _read_last(folder / _LAST)
        self._clean()
        with suppress(StorageError):  # they are too many, which is no reason not to start
            self._prune()  # a process that ended between two steps has left one too many

    @property
    def last(self) -> CompletedBackup | None:
        """The latest complete backup, stored here or sent; None if there was none."""
        return self._last

    @property
    def disk(self) -> Path:
        return self._folder if self._folder.exists() else self._folder.parent

    def store(
        self,
        chunks: Iterator[bytes],
        is_cancelled: Callable[[], bool],
        verify: Callable[[Path, Path], object] | None = None,
    ) -> StoredBackup:
        """Writes a backup, and then deletes those that are too many, the oldest first.

        Args:
            chunks: Its bytes. Only one backup is made at a time, so that their iterator refuses a second one.
            is_cancelled: Whether nobody wants it any more, asked after each chunk.
            verify: Checks the written file before it gets its name, with an empty folder for its work; its exceptions
                are passed on. None checks nothing.

        Raises:
            RequestCancelled: It was cancelled; nothing is left of it.
        """
        first = next(chunks, b"")  # from here on no other backup is in progress
        partial = self._folder / _PARTIAL
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            size = 0
            with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
                for chunk in _chained(first, chunks):
                    if is_cancelled():
                        raise RequestCancelled
                    size += file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            if verify is not None:
                (self._folder / _SCRATCH).mkdir(mode=0o700)
                verify(partial, self._folder / _SCRATCH)
                if is_cancelled():
                    raise RequestCancelled
            path = self._folder / self._newest_time().strftime(_TIME)
            partial.replace(path)
            sync(self._folder)
        except OSError as error:
            kind = StorageFull if error.errno in _FULL else StorageError
            raise kind(f"{self._folder}: {error.strerror}; no backup was made") from error
        finally:
            self._clean()
        self.completed(size, BackupWay.STORED)
        self._prune()
        return StoredBackup(path.name, _time_of(path.name), size)

    def completed(self, size_bytes: int, way: BackupWay) -> None:
        """Records that a backup is complete."""
        self._last = CompletedBackup(self._clock(), size_bytes, way)
        plain = {"at": self._last.at.isoformat(), "size_bytes": size_bytes, "way": way.value}
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            replace_file(self._folder / _LAST, json.dumps(plain).encode(), mode=0o600)
        except OSError as error:  # the backup is complete all the same
            log.warning("the time of the backup could not be kept", reason=error.strerror)

    def list(self) -> tuple[StoredBackup, ...]:
        """Returns the backups, the newest first."""
        return stored_backups(self._folder)

    def read(self, name: str) -> Iterator[bytes]:
        """Returns the bytes of a backup, in chunks; deleting it meanwhile does not disturb.

        Raises:
            FileNotFound: There is none of that name.
            StorageError: It cannot be read.
        """
        path = self._path(name)
        try:
            file = path.open("rb")
        except FileNotFoundError:
            raise FileNotFound(name) from None
        except OSError as error:
            raise StorageError(f"{path}: {error.strerror}") from error
        return _blocks(file, path)

    def delete(self, name: str) -> StoredBackup:
        """Deletes a backup, and returns its description.

        Raises:
            FileNotFound: There is none of that name.
            StorageError: It cannot be deleted.
        """
        path = self._path(name)
        try:
            size = path.stat().st_size
            path.unlink()
        except FileNotFoundError:
            raise FileNotFound(name) from None
        except OSError as error:
            raise StorageError(f"{path}: {error.strerror}") from error
        return StoredBackup(name, _time_of(name), size)

    def _prune(self) -> None:
        for old in self.list()[self.keep :]:
            self.delete(old.name)

    def _clean(self) -> None:
        with suppress(OSError):
            (self._folder / _PARTIAL).unlink(missing_ok=True)
        shutil.rmtree(self._folder / _SCRATCH, ignore_errors=True)

    def _newest_time(self) -> datetime:
        now = self._clock().replace(microsecond=0)
        kept = self.list()
        return max(now, kept[0].created_at + timedelta(seconds=1)) if kept else now

    def _path(self, name: str) -> Path:
        if not is_backup_name(name):
            raise FileNotFound(name)
        return self._folder / name


def stored_backups(folder: Path) -> tuple[StoredBackup, ...]:
    """Returns the backups in a folder, the newest first."""
    found: list[StoredBackup] = []
    with suppress(OSError):  # there is no folder, or a backup was deleted meanwhile
        for entry in os.scandir(folder):
            if is_backup_name(entry.name):
                found.append(StoredBackup(entry.name, _time_of(entry.name), entry.stat().st_size))
    return tuple(sorted(found, key=lambda backup: backup.name, reverse=True))


def _chained(first: bytes, chunks: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from chunks


def _blocks(file: Any, path: Path) -> Iterator[bytes]:
    try:
        with file:
            while block := file.read(_BLOCK_BYTES):
                yield block
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}") from error


def _time_of(name: str) -> datetime:
    return datetime.strptime(name, _TIME).replace(tzinfo=UTC)


def _read_last(path: Path) -> CompletedBackup | None:
    try:
        plain = json.loads(path.read_bytes())
        return CompletedBackup(datetime.fromisoformat(plain["at"]), int(plain["size_bytes"]), BackupWay(plain["way"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        log.warning("the time of the latest backup cannot be read", file=str(path))
        return None
