"""A stage: a bounded queue, one thread that runs micro-batches of the queued requests, and its audit events."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from edge_rag.core.monitoring.event import AuditEvent, AuditEventKind
from edge_rag.core.monitoring.status import StageSnapshot
from edge_rag.core.ports import AuditSink
from edge_rag.core.query import Query
from edge_rag.errors import DeadlineExceeded, EdgeRagError, NotReady, Overloaded, error_class

In = TypeVar("In")
Out = TypeVar("Out")

_DRAIN_RATE_MEMORY = 0.2
"""Weight of the newest batch in the moving average of the time an item takes."""


@dataclass(frozen=True, slots=True)
class Timed(Generic[Out]):
    """A result with its times.

    Attributes:
        value: The result.
        queue_s: Time in the queue, seconds.
        compute_s: Time of its batch, seconds; each request of a batch counts all of it.
    """

    value: Out
    queue_s: float
    compute_s: float


@dataclass(slots=True)
class _Item(Generic[In, Out]):
    request: In
    deadline: float | None
    queued_at: float
    future: Future[Timed[Out]]
    context: Context


class Stage(Generic[In, Out]):
    """Runs a batch function on its own thread.

    Args:
        name: Name of the stage, as it appears in timings and errors.
        work: Computes a batch and returns one entry per request, in order. An exception as an entry fails that request;
            a raised exception fails the whole batch.
        capacity: Capacity of the queue, requests.
        max_batch: Largest batch, requests.
        clock: Monotonic seconds.
        busy: Returns a context manager that is entered while a batch is computed.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[Sequence[In]], Sequence[Out | Exception]],
        capacity: int,
        max_batch: int,
        clock: Callable[[], float] = time.monotonic,
        busy: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._name = name
        self._work = work
        self._capacity = capacity
        self._max_batch = max_batch
        self._clock = clock
        self._busy = busy
        self._queue: deque[_Item[In, Out]] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._running = 0
        self._completed = 0
        self._refused = 0
        self._seconds_per_item = 0.05
        self._thread = threading.Thread(target=self._run, name=f"stage-{name}", daemon=True)
        self._thread.start()

    def submit(self, request: In, deadline: float | None) -> Future[Timed[Out]]:
        """Queues a request. Cancelling the future removes it from the queue; a batch that has begun is completed.

        Args:
            request: The request.
            deadline: ``clock()`` seconds after which it is not started, or None.

        Raises:
            Overloaded: The queue is full.
            DeadlineExceeded: The deadline has passed.
            NotReady: The stage is closed.
        """
        now = self._clock()
        if deadline is not None and deadline <= now:
            raise DeadlineExceeded(self._name)
        future: Future[Timed[Out]] = Future()
        with self._changed:
            if self._closed:
                raise NotReady(f"the {self._name} stage is shutting down")
            if len(self._queue) >= self._capacity:
                self._drop_cancelled()
            if len(self._queue) >= self._capacity:
                self._refused += 1
                raise Overloaded(self._name, retry_after_s=max(0.05, len(self._queue) * self._seconds_per_item))
            self._queue.append(_Item(request, deadline, now, future, copy_context()))
            self._changed.notify()
        return future

    def snapshot(self) -> StageSnapshot:
        """Returns the stage's counts."""
        with self._changed:
            waiting = len(self._queue)
            return StageSnapshot(self._name, waiting, self._capacity, self._running, self._completed, self._refused)

    def close(self) -> None:
        """Fails queued requests with NotReady, completes the current batch and ends the thread."""
        with self._changed:
            self._closed = True
            queued = list(self._queue)
            self._queue.clear()
            self._changed.notify()
        for item in queued:
            if item.future.set_running_or_notify_cancel():
                item.future.set_exception(NotReady(f"the {self._name} stage is shutting down"))
        self._thread.join()

    def _drop_cancelled(self) -> None:
        kept = [item for item in self._queue if not item.future.cancelled()]
        self._queue.clear()
        self._queue.extend(kept)

    def _run(self) -> None:
        while batch := self._next_batch():
            started = self._clock()
            try:
                results: Sequence[Out | Exception] = self._compute(batch)
            except Exception as error:  # noqa: BLE001 - an exception of a batch is the result of its requests
                results = [error] * len(batch)
            took = self._clock() - started
            with self._changed:
                self._running = 0
                self._completed += len(batch)
                self._seconds_per_item += _DRAIN_RATE_MEMORY * (took / len(batch) - self._seconds_per_item)
            for item, result in zip(batch, results, strict=True):
                if isinstance(result, Exception):
                    item.future.set_exception(result)
                else:
                    item.future.set_result(Timed(result, started - item.queued_at, took))

    def _compute(self, batch: Sequence[_Item[In, Out]]) -> Sequence[Out | Exception]:
        requests = [item.request for item in batch]
        with self._busy():
            # A batch of one runs in the context of its request, so that its log lines carry the request id.
            return batch[0].context.run(self._work, requests) if len(batch) == 1 else self._work(requests)

    def _next_batch(self) -> list[_Item[In, Out]]:
        with self._changed:
            while True:
                batch: list[_Item[In, Out]] = []
                while self._queue and len(batch) < self._max_batch:
                    item = self._queue.popleft()
                    if not item.future.set_running_or_notify_cancel():
                        continue
                    if item.deadline is not None and item.deadline <= self._clock():
                        item.future.set_exception(DeadlineExceeded(self._name))
                        continue
                    batch.append(item)
                if batch or self._closed:
                    self._running = len(batch)
                    return batch
                self._changed.wait()


class StageEventRecorder:
    """Records one audit event for each stage that a question passes, or that ends it.

    Args:
        audit: Receives the events.
        clock: Monotonic seconds.
    """

    def __init__(self, audit: AuditSink, clock: Callable[[], float]) -> None:
        self._audit = audit
        self._clock = clock

    def completed(self, query: Query, stage: str, timed: Timed[Any]) -> None:
        """Records that a stage has completed a question."""
        numbers = {"queue_s": timed.queue_s, "compute_s": timed.compute_s}
        self._record(AuditEventKind.STAGE_DONE, query, f"the {stage} is done", numbers)

    @contextmanager
    def failures(self, query: Query, stage: str) -> Iterator[None]:
        """Records the error or cancellation with which the block ends a question, if any."""
        try:
            yield
        except Overloaded as error:
            reason = f"the {stage}'s queue is full"
            self._record(AuditEventKind.REFUSED, query, reason, {"retry_after_s": error.retry_after_s})
            raise
        except DeadlineExceeded:
            self._record(AuditEventKind.EXPIRED, query, f"its deadline passed in the {stage}", {})
            raise
        except EdgeRagError as error:
            self._record(AuditEventKind.FAILED, query, f"it failed in the {stage}: {error_class(error)}", {})
            raise
        except asyncio.CancelledError:
            self._record(AuditEventKind.CANCELLED, query, f"the caller cancelled it in the {stage}", {})
            raise

    def _record(self, kind: AuditEventKind, query: Query, reason: str, numbers: Mapping[str, float]) -> None:
        self._audit.record(
            AuditEvent(kind, query.request_id, query.client, query.priority, reason, numbers, self._clock())
        )
