"""Backups that are made by a schedule, while the daemon serves."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Generator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog

from edge_rag.core.monitoring.alerts import FULL_DISK_BYTES, BackupState
from edge_rag.core.monitoring.schedule import Schedule
from edge_rag.core.monitoring.status import StoredBackup
from edge_rag.errors import EdgeRagError, NotReady, RequestCancelled, StorageFull
from edge_rag.storage.recovery.restore import try_restore
from edge_rag.storage.recovery.stored_backups import StoredBackups

START_DELAY: Final = timedelta(minutes=5)
"""Time after the start before a backup that was missed is made; a box that starts has other work."""

RETRY_DELAY: Final = timedelta(hours=1)
"""Time after a failure before it is tried again."""

_LONGEST_WAIT_S: Final = 60.0  # the clock may be set, and the machine may sleep

log = structlog.get_logger()


class ScheduledBackups:
    """Makes a backup when one is due, on a thread of its own. A missed one is made soon after the next start.

    Args:
        schedule: When; None for never.
        make: Creates and verifies a backup; called with ``is_cancelled``.
        newest: Returns the time of the newest backup on the box; None without any.
        begin: Called first on the thread.
        clock: Wall clock, UTC.
        wait: Waits for some seconds or until the event is set; returns whether it is set.
    """

    def __init__(
        self,
        schedule: Schedule | None,
        make: Callable[[Callable[[], bool]], StoredBackup],
        newest: Callable[[], datetime | None],
        *,
        begin: Callable[[], None] = lambda: None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
    ) -> None:
        self._schedule = schedule
        self._make = make
        self._newest = newest
        self._begin = begin
        self._clock = clock
        self._wait = wait
        self._started = clock()
        self._pause_until = self._started + START_DELAY
        self._failure = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="backup")

    def start(self) -> None:
        """Starts the thread, if there is a schedule."""
        if self._schedule is not None:
            self._thread.start()

    def close(self) -> None:
        """Ends the thread and a backup that is being made; nothing is left of that."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def state(self) -> BackupState:
        """Returns when the next one is due, and what went wrong. Any thread."""
        if self._schedule is None:
            return BackupState()
        now = self._clock()
        return BackupState(
            max(now, self._due(self._schedule, now)),
            overdue_since(self._schedule, max(self._started, self._newest() or self._started), now),
            self._failure,
        )

    def _due(self, schedule: Schedule, now: datetime) -> datetime:
        newest = self._newest()
        # The first does not wait: a box that is off at night would never make it. A clock that was set back must not
        # stop backups for years.
        due = self._started if newest is None else schedule.next_after(min(newest, now))
        return max(due, min(self._pause_until, now + RETRY_DELAY))

    def _run(self) -> None:
        assert self._schedule is not None, "the thread starts with a schedule"
        self._begin()
        while not self._stop.is_set():
            now = self._clock()
            due = self._due(self._schedule, now)
            if now < due:
                self._wait(self._stop, min((due - now).total_seconds(), _LONGEST_WAIT_S))
                continue
            try:
                made = self._make(self._stop.is_set)
            except RequestCancelled:
                return
            except NotReady as error:  # somebody makes one now
                log.info("the scheduled backup waits", reason=str(error))
            except EdgeRagError as error:
                self._failure = str(error)
                log.error("the scheduled backup failed", error=self._failure)
            else:
                self._failure = ""
                log.info("scheduled backup", name=made.name, bytes=made.size_bytes)
                continue
            self._pause_until = self._clock() + RETRY_DELAY


def overdue_since(schedule: Schedule, newest: datetime, now: datetime) -> datetime | None:
    """Returns when the backup after the newest was due, if the one after it is due, too; else None."""
    due = schedule.next_after(newest)
    return due if schedule.next_after(due) < now else None


def make_verified(
    stored: StoredBackups,
    chunks: Iterator[bytes],
    size_bytes: int,
    pause: Callable[[float], None],
    is_cancelled: Callable[[], bool],
) -> StoredBackup:
    """Makes a backup on the box and restores it into a scratch folder; only then it gets its name.

    Args:
        chunks: Its bytes.
        pause: Lets others work after a chunk; is given how long it took, seconds.

    Raises:
        StorageFull: There is no room for it; nothing was deleted.
    """
    needed, free = 2 * size_bytes + FULL_DISK_BYTES, shutil.disk_usage(stored.disk).free
    if free < needed:
        raise StorageFull(
            f"a backup needs {needed >> 20:,} MiB on the disk of {stored.disk} while it is made and tried, and "
            f"{free >> 20:,} MiB are free; free some space, or lower backup.keep and delete old ones"
        )
    try:
        return stored.store(_paced(chunks, pause), is_cancelled, try_restore)
    finally:
        if isinstance(chunks, Generator):
            chunks.close()


def _paced(chunks: Iterator[bytes], pause: Callable[[float], None]) -> Iterator[bytes]:
    while True:
        started = time.monotonic()
        if (chunk := next(chunks, None)) is None:
            return
        pause(time.monotonic() - started)
        yield chunk
