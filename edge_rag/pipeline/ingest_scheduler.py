"""Runs the ingest of documents on a few threads, in the order that the policy chooses."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

import structlog

from edge_rag.core.documents.jobs import IngestPhase, IngestWork, JobId, QueuedDocument
from edge_rag.errors import EdgeRagError, StorageError
from edge_rag.pipeline.ingest_forecast import CostModel, Speed
from edge_rag.pipeline.ingest_policy import (
    DocumentInWork,
    IngestLimits,
    IngestShares,
    choose_document,
)

log = structlog.get_logger(__name__)

_FIRST_RETRY_S: Final = 1.0
_MAX_RETRY_S: Final = 30.0
_DECAY_INTERVAL_S: Final = 10.0

Pause = Callable[[float, Callable[[], bool]], None]
"""Waits after so many seconds of work while queries are answered, or until the function returns true."""


class ScheduledTask:
    """A document whose ingest was chosen; implements ``IngestTask``.

    Attributes:
        charged_s: Work on it so far, seconds.
    """

    def __init__(
        self,
        scheduler: IngestScheduler,
        document: QueuedDocument,
        run: Callable[[ScheduledTask], None],
    ) -> None:
        self.document = document
        self.run = run
        self.work = IngestWork(document.job_id or JobId(""), document.name, IngestPhase.PARSING)
        self.charged_s = 0.0
        self.is_parsing = True
        self._scheduler = scheduler
        self._lock = threading.Lock()
        self._reason: EdgeRagError | None = None
        self._stop: Callable[[], None] | None = None

    @property
    def is_ended(self) -> bool:
        return self._reason is not None

    def end(self, reason: EdgeRagError) -> None:
        """Ends the ingest with an error, from any thread: at once while it is parsed, else at the next chunk."""
        with self._lock:
            if self._reason is not None:
                return
            self._reason = reason
            stop = self._stop
        if stop is not None:
            stop()
        self._scheduler.wake()

    def check(self) -> None:
        if self._reason is not None:
            raise self._reason

    @contextmanager
    def parsing(self, stop: Callable[[], None]) -> Iterator[None]:
        """Holds one of the places for parsing; see ``IngestTask``."""
        with self._lock:
            self._stop = stop
            ended = self.is_ended
        if ended:
            stop()
        try:
            yield
        finally:
            with self._lock:
                self._stop = None
            self.is_parsing = False
            self._scheduler.wake()

    @contextmanager
    def embedding(self) -> Iterator[None]:
        with self._scheduler.turn(self):
            yield

    def pause(self, worked_s: float) -> None:
        with self._scheduler.turn(self):
            self._scheduler.pause(worked_s, lambda: self.is_ended)

    def charge(self, seconds: float) -> None:
        """Charges seconds to the owner; see ``IngestTask``."""
        self.charged_s += seconds
        self._scheduler.charge(self.document, seconds)

    def report(self, phase: IngestPhase, done: int, total: int) -> None:
        self.set_work(IngestWork(self.work.job_id, self.work.name, phase, done, total))

    def set_work(self, work: IngestWork) -> None:
        if work != self.work:
            self.work = work
            self._scheduler.on_progress()


class TaskSource(Protocol):
    """Documents that wait. Any thread."""

    def owners(self) -> Sequence[str]:
        """Returns the names of those who have documents waiting.

        Raises:
            StorageError: The data directory failed.
        """
        ...

    def waiting(self, owner: str) -> Sequence[QueuedDocument]:
        """Returns documents of an owner that may begin, a bounded number of each collection.

        Raises:
            StorageError: The data directory failed.
        """
        ...

    def begin(self, document: QueuedDocument) -> ScheduledTask | None:
        """Returns the task of a document that was chosen; None if it does not wait any more.

        Raises:
            StorageError: The data directory failed.
        """
        ...


class IngestScheduler:
    """Chooses documents and runs their ingest on threads of its own. May be used from any thread.

    Args:
        on_ended: Called with an owner and the seconds of work on a document of it that left work.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        limits: IngestLimits,
        pause: Pause,
        on_progress: Callable[[], None],
        on_ended: Callable[[str, float], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pause = pause
        self.on_progress = on_progress
        self._on_ended = on_ended
        self._limits = limits
        self._clock = clock
        self._changed = threading.Condition()
        self._choosing = threading.Lock()
        self._by_owner: IngestShares[str] = IngestShares()
        self._by_collection: IngestShares[tuple[str, str]] = IngestShares()
        self._decayed_at = clock()
        self._costs = CostModel()
        self._speed = Speed()
        self._busy_since = 0.0
        self._worked_s = 0.0
        self._changes = 0
        self._tasks: list[ScheduledTask] = []
        self._turns: list[tuple[ScheduledTask, int]] = []
        self._turn_taken = False
        self._turn_number = 0
        self._closed = False
        self._source: TaskSource | None = None
        self._threads = [
            threading.Thread(target=self._run, name=f"ingest-{number}", daemon=True) for number in range(limits.in_work)
        ]

    def start(self, source: TaskSource) -> None:
        self._source = source
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """Chooses again, because something has changed."""
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

    @property
    def tasks(self) -> tuple[ScheduledTask, ...]:
        with self._changed:
            return tuple(self._tasks)

    def costs(self) -> tuple[CostModel, float]:
        """Returns what documents cost, and the seconds of work that are done in a second."""
        with self._changed:
            return self._costs, self._speed.value

    def charge(self, document: QueuedDocument, seconds: float) -> None:
        """Charges work to a document's owner and collection, seconds."""
        with self._changed:
            self._by_owner.charge(document.owner, seconds)
            self._by_collection.charge((document.owner, document.collection), seconds)
            self._worked_s += seconds

    @contextmanager
    def turn(self, task: ScheduledTask) -> Iterator[None]:
        """Holds the embedder for the block; owners that had the least go first."""
        with self._changed:
            self._turn_number += 1
            mine = task, self._turn_number
            self._turns.append(mine)
            try:
                while not task.is_ended and (self._turn_taken or self._next_turn() is not mine):
                    self._changed.wait()
                task.check()
                self._turn_taken = True
                self._by_owner.begin(task.document.owner)
            finally:
                self._turns.remove(mine)
        try:
            yield
        finally:
            with self._changed:
                self._turn_taken = False
                self._changed.notify_all()

    def close(self, reason: EdgeRagError) -> None:
        """Ends all tasks and the threads."""
        with self._changed:
            self._closed = True
        for task in self.tasks:
            task.end(reason)
        self.wake()
        if self._source is not None:
            for thread in self._threads:
                thread.join()

    def _next_turn(self) -> tuple[ScheduledTask, int]:
        return min(self._turns, key=lambda turn: (self._by_owner.debt(turn[0].document.owner), turn[1]))

    def _run(self) -> None:
        while (task := self._next()) is not None:
            try:
                self._complete(task)
            finally:
                self._leave(task)

    def _next(self) -> ScheduledTask | None:
        """Waits for a document that may begin; None when the scheduler is closed."""
        retry_s = _FIRST_RETRY_S
        while True:
            with self._changed:
                if self._closed:
                    return None
                changes = self._changes
            try:
                task = self._choose()
                retry_s = _FIRST_RETRY_S
            except StorageError as error:
                log.error("ingest waits for storage", error=str(error), seconds=retry_s)
                self._wait(retry_s, lambda: self._closed)
                retry_s = min(_MAX_RETRY_S, 2 * retry_s)
                continue
            if task is not None:
                return task
            self._wait(None, partial(self._has_changed, changes))

    def _has_changed(self, since: int) -> bool:
        return self._closed or since != self._changes

    def _wait(self, seconds: float | None, until: Callable[[], bool]) -> None:
        with self._changed:
            self._changed.wait_for(until, seconds)

    def _choose(self) -> ScheduledTask | None:
        source = self._source
        if source is None:
            return None
        # Two threads must not choose the same document.
        with self._choosing:
            with self._changed:
                if self._closed or len(self._tasks) >= self._limits.in_work:
                    return None
                self._pass_time()
                in_work = [DocumentInWork(task.document, task.is_parsing) for task in self._tasks]
            task: ScheduledTask | None = None
            while task is None:
                chosen = choose_document(
                    source.owners(), source.waiting, in_work, self._by_owner, self._by_collection, self._limits
                )
                if chosen is None:
                    return None
                task = source.begin(chosen)
            with self._changed:
                if not self._tasks:
                    self._busy_since, self._worked_s = self._clock(), 0.0
                self._tasks.append(task)
                self._by_owner.begin(task.document.owner)
                self._by_collection.begin((task.document.owner, task.document.collection))
                self._changes += 1  # another one may begin beside it
                self._changed.notify_all()
        self.on_progress()
        return task

    def _pass_time(self) -> None:
        now = self._clock()
        if now - self._decayed_at >= _DECAY_INTERVAL_S:
            for shares in (self._by_owner, self._by_collection):
                shares.pass_time(now - self._decayed_at)
            self._decayed_at = now

    def _complete(self, task: ScheduledTask) -> None:
        """Runs a task until it is stored, rejected or ended."""
        retry_s = _FIRST_RETRY_S
        while not task.is_ended:
            try:
                task.run(task)
            except StorageError as error:
                log.error("ingest waits for storage", error=str(error), seconds=retry_s)
                task.set_work(replace(task.work, problem=str(error)))
                self._wait(retry_s, lambda: task.is_ended)
                retry_s = min(_MAX_RETRY_S, 2 * retry_s)
            except Exception:
                if not task.is_ended:
                    log.exception("document ingest failed", document=task.document.name)
                return
            else:
                return

    def _leave(self, task: ScheduledTask) -> None:
        now = self._clock()
        with self._changed:
            self._tasks.remove(task)
            self._changes += 1
            if not task.is_ended:
                self._costs.add(task.document.size_bytes, task.charged_s)
            self._speed.add(self._worked_s, now - self._busy_since)
            self._busy_since, self._worked_s = now, 0.0
            self._changed.notify_all()
        self._on_ended(task.document.owner, task.charged_s)
        self.on_progress()
