"""A stage: a bounded fair queue, one thread that runs micro-batches of the queued requests, and its audit events."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import Context, copy_context
from dataclasses import dataclass
from math import inf
from typing import Any, Generic, TypeVar

from edge_rag.core.limits.fair_share import FairQueue, Queued
from edge_rag.core.monitoring.event import AuditEvent, AuditEventKind
from edge_rag.core.monitoring.status import StageSnapshot
from edge_rag.core.ports import AuditSink
from edge_rag.core.query import NO_CONTEXT, Priority, Query, RequestContext
from edge_rag.errors import DeadlineExceeded, EdgeRagError, NotReady, Overloaded, error_class

In = TypeVar("In")
Out = TypeVar("Out")

_NEWEST = 0.2
"""Weight of the newest batch in the moving averages of the time per item and per unit of cost."""


@dataclass(frozen=True, slots=True)
class Timed(Generic[Out]):
    """A result with its times.

    Attributes:
        queue_s: Time in the queue and between its steps, seconds.
        compute_s: Time of its batch or of its steps, seconds; each request of a batch counts all of it.
    """

    value: Out
    queue_s: float
    compute_s: float


@dataclass(frozen=True, slots=True)
class WorkLimit(Generic[In, Out]):
    """How much a stage computes before it looks into its queue again.

    Attributes:
        cost: Returns the estimated cost of a request, more than 0, in a unit of the stage's own. Any thread.
        steps: Computes one request in steps; yields between them and returns the result. Requests that cost more than
            ``most`` are computed so, one at a time, and others run between the steps. None if that is not possible.
    """

    cost: Callable[[In], float]
    most: float
    steps: Callable[[In], Generator[None, None, Out]] | None = None


@dataclass(slots=True)
class _Item(Generic[In, Out]):
    request: In
    cost: float
    deadline: float | None
    queued_at: float
    future: Future[Timed[Out]]
    context: Context


@dataclass(slots=True)
class _Stepped(Generic[In, Out]):
    """A request that is computed in steps."""

    entry: Queued[_Item[In, Out]]
    steps: Generator[None, None, Out]
    compute_s: float = 0.0


class Stage(Generic[In, Out]):
    """Runs a batch function on its own thread.

    Requests wait in a ``FairQueue``: the client that has had the least time of the thread is next. A request's time is
    estimated from its cost and charged as measured; those of a batch share its time by their costs.

    Args:
        work: Computes a batch and returns one entry per request, in order. An exception as an entry fails that request;
            a raised exception fails the whole batch.
        capacity: Capacity of the queue, requests; one client cannot fill it while others come.
        clock: Monotonic seconds.
        busy: Returns a context manager that is entered while a batch is computed.
        limit: Bounds the cost of a batch; None for equal requests: only their number is bounded.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[Sequence[In]], Sequence[Out | Exception]],
        capacity: int,
        max_batch: int,
        clock: Callable[[], float] = time.monotonic,
        busy: Callable[[], AbstractContextManager[None]] = nullcontext,
        limit: WorkLimit[In, Out] | None = None,
    ) -> None:
        self._name = name
        self._work = work
        self._capacity = capacity
        self._max_batch = max_batch
        self._clock = clock
        self._busy = busy
        self._limit: WorkLimit[In, Out] = WorkLimit(lambda request: 1.0, inf) if limit is None else limit
        self._queue: FairQueue[_Item[In, Out]] = FairQueue(capacity)
        self._stepped: _Stepped[In, Out] | None = None
        self._changed = threading.Condition()
        self._closed = False
        self._running = 0
        self._completed = 0
        self._refused = 0
        self._seconds_per_item = 0.05
        self._seconds_per_cost: float | None = None
        self._thread = threading.Thread(target=self._run, name=f"stage-{name}", daemon=True)
        self._thread.start()

    def submit(self, request: In, deadline: float | None, caller: RequestContext = NO_CONTEXT) -> Future[Timed[Out]]:
        """Queues a request. Cancelling the future removes it from the queue; a batch that has begun is completed.

        Args:
            deadline: ``clock()`` seconds after which it is not started, or None.
            caller: Its client has a fair share of the stage; its priority orders the client's own requests.

        Raises:
            Overloaded: The queue is full, or the client has its share of it.
            DeadlineExceeded: The deadline has passed.
            NotReady: The stage is closed.
        """
        now = self._clock()
        if deadline is not None and deadline <= now:
            raise DeadlineExceeded(self._name)
        future: Future[Timed[Out]] = Future()
        item = _Item(request, self._limit.cost(request), deadline, now, future, copy_context())
        client, priority = caller.client, Priority.NORMAL if caller.priority is None else caller.priority
        with self._changed:
            if self._closed:
                raise NotReady(f"the {self._name} stage is shutting down")
            if not self._queue.has_room(client):
                self._drop_cancelled()
            if not self._queue.has_room(client):
                self._refused += 1
                raise Overloaded(self._name, retry_after_s=max(0.05, len(self._queue) * self._seconds_per_item))
            self._queue.put(client, item, item.cost * (self._seconds_per_cost or 1.0), priority)
            self._changed.notify()
        return future

    def snapshot(self) -> StageSnapshot:
        with self._changed:
            waiting, running = len(self._queue), self._running + (self._stepped is not None)
            return StageSnapshot(self._name, waiting, self._capacity, running, self._completed, self._refused)

    def close(self) -> None:
        """Fails queued requests with NotReady, completes the current batch or step and ends the thread."""
        with self._changed:
            self._closed = True
            queued = list(self._queue)
            for entry in queued:
                self._queue.remove(entry)
            self._changed.notify()
        for entry in queued:
            self._fail(entry.value, NotReady(f"the {self._name} stage is shutting down"))
        self._thread.join()

    @staticmethod
    def _fail(item: _Item[In, Out], error: EdgeRagError) -> None:
        if item.future.set_running_or_notify_cancel():
            item.future.set_exception(error)

    def _drop_cancelled(self) -> None:
        for entry in [entry for entry in self._queue if entry.value.future.cancelled()]:
            self._queue.remove(entry)

    def _run(self) -> None:
        while (batch := self._next_batch()) is not None:
            if batch:
                self._run_batch(batch)
            elif self._stepped is not None:
                self._run_step(self._stepped)

    def _next_batch(self) -> list[Queued[_Item[In, Out]]] | None:
        """Waits for work; returns a batch, nothing where a step is next, or None at the end."""
        with self._changed:
            while True:
                first, stepped = self._first(), self._stepped
                if stepped is not None and (
                    first is None or self._queue.service(stepped.entry.client) <= self._queue.service(first.client)
                ):
                    return []
                if first is not None:
                    return self._take(first)
                if self._closed:
                    return None
                self._changed.wait()

    def _first(self) -> Queued[_Item[In, Out]] | None:
        while (entry := self._queue.first(self._may_start)) is not None:
            item = entry.value
            expired = item.deadline is not None and item.deadline <= self._clock()
            if not expired and not item.future.cancelled():
                return entry
            self._queue.remove(entry)
            self._fail(item, DeadlineExceeded(self._name))
        return None

    def _may_start(self, entry: Queued[_Item[In, Out]]) -> bool:
        return self._stepped is None or not self._in_steps(entry.value)

    def _in_steps(self, item: _Item[In, Out]) -> bool:
        return self._limit.steps is not None and item.cost > self._limit.most

    def _take(self, first: Queued[_Item[In, Out]]) -> list[Queued[_Item[In, Out]]]:
        """Takes the next entry and those after it that fit into its batch; begins one that is computed in steps."""
        if self._limit.steps is not None and self._in_steps(first.value):
            self._queue.take(first)
            self._stepped = _Stepped(first, self._limit.steps(first.value.request))
            return []
        batch: list[Queued[_Item[In, Out]]] = []
        cost = 0.0
        entry: Queued[_Item[In, Out]] | None = first
        while entry is not None and len(batch) < self._max_batch:
            cost += entry.value.cost
            if batch and (cost > self._limit.most or self._in_steps(entry.value)):
                break
            if entry.value.future.set_running_or_notify_cancel():
                self._queue.take(entry)
                batch.append(entry)
            else:
                self._queue.remove(entry)
                cost -= entry.value.cost
            entry = self._first()
        self._running = len(batch)
        return batch

    def _run_batch(self, batch: Sequence[Queued[_Item[In, Out]]]) -> None:
        items = [entry.value for entry in batch]
        started = self._clock()
        try:
            results: Sequence[Out | Exception] = self._compute(items)
        except Exception as error:  # noqa: BLE001 - an exception of a batch is the result of its requests
            results = [error] * len(items)
        took = self._clock() - started
        with self._changed:
            cost = sum(item.cost for item in items)
            for entry in batch:
                self._queue.finish(entry, took * entry.value.cost / cost)
            self._running = 0
            self._completed += len(items)
            self._measured(took, len(items), cost)
        for item, result in zip(items, results, strict=True):
            if isinstance(result, Exception):
                item.future.set_exception(result)
            else:
                item.future.set_result(Timed(result, started - item.queued_at, took))

    def _measured(self, took: float, items: int, cost: float) -> None:
        self._seconds_per_item += _NEWEST * (took / items - self._seconds_per_item)
        before = took / cost if self._seconds_per_cost is None else self._seconds_per_cost
        self._seconds_per_cost = before + _NEWEST * (took / cost - before)

    def _compute(self, items: Sequence[_Item[In, Out]]) -> Sequence[Out | Exception]:
        requests = [item.request for item in items]
        with self._busy():
            # A batch of one runs in the context of its request, so that its log lines carry the request id.
            return items[0].context.run(self._work, requests) if len(items) == 1 else self._work(requests)

    def _run_step(self, stepped: _Stepped[In, Out]) -> None:
        item = stepped.entry.value
        started = self._clock()
        result: Out | Exception | None = None
        is_over = True
        try:
            if self._closed:
                raise NotReady(f"the {self._name} stage is shutting down")
            if item.deadline is not None and item.deadline <= started:
                raise DeadlineExceeded(self._name)
            if not item.future.cancelled():
                with self._busy():
                    item.context.run(next, stepped.steps)
                is_over = False
        except StopIteration as end:
            result = end.value
        except Exception as error:  # noqa: BLE001 - an exception of a request is its result
            result = error
        ended = self._clock()
        stepped.compute_s += ended - started
        with self._changed:
            if not is_over:
                self._queue.charge(stepped.entry, ended - started)
                return
            self._queue.finish(stepped.entry, ended - started)
            self._stepped = None
            self._completed += 1
            self._measured(stepped.compute_s, 1, item.cost)
        stepped.steps.close()
        if not item.future.set_running_or_notify_cancel():
            return
        if isinstance(result, Exception):
            item.future.set_exception(result)
        elif result is not None:
            queue_s = ended - item.queued_at - stepped.compute_s
            item.future.set_result(Timed(result, queue_s, stepped.compute_s))


class StageEventRecorder:
    """Records one audit event for each stage that a question passes, or that ends it.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, audit: AuditSink, clock: Callable[[], float]) -> None:
        self._audit = audit
        self._clock = clock

    def completed(self, query: Query, stage: str, timed: Timed[Any]) -> None:
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
