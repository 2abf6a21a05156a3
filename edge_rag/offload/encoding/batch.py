"""A batch of requests, each encoded locally or on a remote. Every request gets a result, also if remotes fail.

REMOTE   a remote does it ── failure or timeout ──────> the local encoder does it
                          ── slower than usual ───────> the local encoder does it as well, the first result is taken
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from edge_rag.errors import EdgeRagError
from edge_rag.offload.encoding.client import EncoderCall, EncodeRequest, EncoderOffload, EncoderState
from edge_rag.offload.encoding.routing import EncoderWork
from edge_rag.offload.generation.routing import Place

_In = TypeVar("_In")
_Out = TypeVar("_Out")


@dataclass(frozen=True, slots=True)
class BatchItem(Generic[_Out]):
    """A request of a batch: what routing needs of it, and the call to a remote."""

    request: EncodeRequest
    call: EncoderCall[_Out]


@dataclass(slots=True)
class _InFlight(Generic[_Out]):
    future: Future[_Out]
    state: EncoderState
    started: float
    hedge_at: float | None
    hedged: bool = False


class BatchEncoder(Generic[_In, _Out]):
    """Encodes batches. For one thread at a time.

    Args:
        local: Encodes locally, in order; called by one thread at a time.
    """

    def __init__(
        self,
        offload: EncoderOffload,
        work: EncoderWork,
        local: Callable[[Sequence[_In]], Sequence[_Out]],
        make_item: Callable[[_In], BatchItem[_Out]],
    ) -> None:
        self._offload = offload
        self._work = work
        self._local = local
        self._make_item = make_item
        self._local_lock = threading.Lock()
        self._executor = ThreadPoolExecutor(1, f"offload-{work.value}")

    def encode(self, inputs: Sequence[_In]) -> list[_Out]:
        """Encodes each input, in order."""
        items = [self._make_item(each) for each in inputs]
        pending, in_flight = self._dispatch(items)
        if not in_flight:
            return list(self._run_local(inputs, items))
        return _Batch(self._offload, self._work, inputs, items, pending, in_flight, self._submit_local).result()

    def close(self) -> None:
        self._executor.shutdown()

    def _dispatch(self, items: Sequence[BatchItem[_Out]]) -> tuple[list[int], dict[int, _InFlight[_Out]]]:
        """Sends items to remotes; returns the indices that are left to the local encoder, and the calls in flight."""
        pending: list[int] = []
        in_flight: dict[int, _InFlight[_Out]] = {}
        ahead, assigned = 0, Counter[str]()
        for index, item in enumerate(items):
            decision = self._offload.place(item.request, ahead, assigned)
            if decision.place is not Place.REMOTE:
                pending.append(index)
                ahead += item.request.texts
            if decision.place is not Place.LOCAL:
                in_flight[index] = self._send(self._offload.states[decision.remotes[0]], item)
                assigned[decision.remotes[0]] += 1
        return pending, in_flight

    def _send(self, state: EncoderState, item: BatchItem[_Out]) -> _InFlight[_Out]:
        now, timeouts = self._offload.clock(), self._offload.timeouts(state, item.request)
        caller = self._offload.caller
        future = caller.loop.submit(caller.call(state, item.call, timeouts.timeout_s))
        return _InFlight(future, state, now, None if timeouts.hedge_s is None else now + timeouts.hedge_s)

    def _submit_local(self, inputs: Sequence[_In], items: Sequence[BatchItem[_Out]]) -> Future[Sequence[_Out]]:
        return self._executor.submit(copy_context().run, self._run_local, inputs, items)

    def _run_local(self, inputs: Sequence[_In], items: Sequence[BatchItem[_Out]]) -> Sequence[_Out]:
        with self._local_lock:
            started = self._offload.clock()
            results = self._local(inputs)
            texts = sum(item.request.texts for item in items)
            self._offload.measure_local(self._work, texts, self._offload.clock() - started)
            return results


class _Batch(Generic[_In, _Out]):
    """A batch with calls in flight."""

    def __init__(
        self,
        offload: EncoderOffload,
        work: EncoderWork,
        inputs: Sequence[_In],
        items: Sequence[BatchItem[_Out]],
        pending: list[int],
        in_flight: dict[int, _InFlight[_Out]],
        submit_local: Callable[[Sequence[_In], Sequence[BatchItem[_Out]]], Future[Sequence[_Out]]],
    ) -> None:
        self._offload = offload
        self._work = work
        self._inputs = inputs
        self._items = items
        self._pending = pending
        self._in_flight = in_flight
        self._submit_local = submit_local
        self._results: dict[int, _Out] = {}
        self._local: Future[Sequence[_Out]] | None = None
        self._local_indices: list[int] = []

    def result(self) -> list[_Out]:
        """Waits until every item has a result."""
        try:
            while len(self._results) < len(self._inputs):
                self._start_local()
                futures: list[Future[Any]] = [call.future for call in self._in_flight.values()]
                if self._local is not None:
                    futures.append(self._local)
                wait(futures, self._until_next_hedge(), FIRST_COMPLETED)
                self._collect_local()
                self._collect_remote()
        finally:
            for call in self._in_flight.values():
                self._cancel(call)
            if self._local is not None:
                self._local.cancel()  # if it runs already, its result is ignored
        return [self._results[index] for index in range(len(self._inputs))]

    def _start_local(self) -> None:
        if self._local is None and self._pending:
            self._local_indices, self._pending = self._pending, []
            self._local = self._submit_local(
                [self._inputs[index] for index in self._local_indices],
                [self._items[index] for index in self._local_indices],
            )

    def _collect_local(self) -> None:
        if self._local is None or not self._local.done():
            return
        local, self._local = self._local, None
        for index, result in zip(self._local_indices, local.result(), strict=True):
            if index not in self._results:
                self._results[index] = result
                if (call := self._in_flight.pop(index, None)) is not None:
                    self._cancel(call)
        self._local_indices = []

    def _collect_remote(self) -> None:
        now = self._offload.clock()
        for index, call in tuple(self._in_flight.items()):
            if call.future.done():
                del self._in_flight[index]
                self._take_result(index, call, now)
            elif call.hedge_at is not None and now >= call.hedge_at:
                call.hedge_at = None
                if not self._is_local(index):
                    call.hedged = True
                    context = self._items[index].request.context
                    self._offload.caller.events.hedged(context, self._work, now - call.started, now)
                    self._pending.append(index)

    def _take_result(self, index: int, call: _InFlight[_Out], now: float) -> None:
        try:
            self._results[index] = call.future.result()
            return
        except EdgeRagError as error:
            problem = str(error)
        except CancelledError:
            problem = "the daemon is shutting down"
        if not self._is_local(index):
            request = self._items[index].request
            events = self._offload.caller.events
            events.taken_over(request.context, self._work, call.state.name, problem, request.texts, now)
            self._pending.append(index)

    def _is_local(self, index: int) -> bool:
        return index in self._local_indices or index in self._pending

    def _cancel(self, call: _InFlight[_Out]) -> None:
        call.future.cancel()
        if call.hedged:
            caller, shared = self._offload.caller, call.state.shared
            problem = "the local encoder started later and was first"
            caller.loop.post(lambda: caller.remotes.record_failure(shared, problem, busy=False))

    def _until_next_hedge(self) -> float | None:
        now = self._offload.clock()
        hedges = [call.hedge_at for call in self._in_flight.values() if call.hedge_at is not None]
        return max(0.0, min(hedges) - now) if hedges else None
