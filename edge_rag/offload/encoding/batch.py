"""A batch of requests, each encoded here or elsewhere; all of them are done in the end, whatever becomes of the others.

REMOTE   a machine does it ── fails, or takes too long ──> this box does it
                           ── takes unusually long ──────> this box does it as well
BOTH     whoever is first
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
from edge_rag.offload.encoding.routing import Work
from edge_rag.offload.generation.routing import Place

_In = TypeVar("_In")
_Out = TypeVar("_Out")


@dataclass(frozen=True, slots=True)
class BatchItem(Generic[_Out]):
    """A request of a batch.

    Attributes:
        wanted: What is decided on.
        parcel: What a machine is brought.
    """

    wanted: EncodeRequest
    parcel: EncoderCall[_Out]


@dataclass(slots=True)
class _Trip(Generic[_Out]):
    future: Future[_Out]
    desk: EncoderState
    started: float
    hedge_at: float | None
    hedged: bool = False


class Sharing(Generic[_In, _Out]):
    """For one thread at a time.

    Args:
        loan: Decides, and knows the machines.
        work: What is done.
        here: Does it here, in order; called by one thread at a time.
        errand: Returns what a request is to others.
    """

    def __init__(
        self,
        loan: EncoderOffload,
        work: Work,
        here: Callable[[Sequence[_In]], Sequence[_Out]],
        errand: Callable[[_In], BatchItem[_Out]],
    ) -> None:
        self._loan = loan
        self._work = work
        self._here = here
        self._errand = errand
        self._one_at_a_time = threading.Lock()
        self._beside = ThreadPoolExecutor(1, f"offload-{work.value}")

    def compute(self, requests: Sequence[_In]) -> list[_Out]:
        """Answers each request, in order.

        Raises:
            EdgeRagError: It cannot be done here.
        """
        errands = [self._errand(request) for request in requests]
        owed, trips = self._depart(errands)
        if not trips:
            return list(self._timed(requests, errands))
        return _Batch(self._loan, self._work, requests, errands, owed, trips, self._begin_here).finish()

    def close(self) -> None:
        """Lets what is done here finish."""
        self._beside.shutdown()

    def _depart(self, errands: Sequence[BatchItem[_Out]]) -> tuple[list[int], dict[int, _Trip[_Out]]]:
        owed: list[int] = []
        trips: dict[int, _Trip[_Out]] = {}
        ahead, given = 0, Counter[str]()
        for index, errand in enumerate(errands):
            choice = self._loan.place(errand.wanted, ahead, given)
            if choice.place is not Place.REMOTE:
                owed.append(index)
                ahead += errand.wanted.texts
            if choice.place is not Place.LOCAL:
                trips[index] = self._send(self._loan.desks[choice.remotes[0]], errand)
                given[choice.remotes[0]] += 1
        return owed, trips

    def _send(self, desk: EncoderState, errand: BatchItem[_Out]) -> _Trip[_Out]:
        now, patience = self._loan.clock(), self._loan.waiting(desk, errand.wanted)
        courier = self._loan.courier
        future = courier.dispatch.begin(courier.carry(desk, errand.parcel, patience.give_up_s))
        return _Trip(future, desk, now, None if patience.hedge_s is None else now + patience.hedge_s)

    def _begin_here(self, requests: Sequence[_In], errands: Sequence[BatchItem[_Out]]) -> Future[Sequence[_Out]]:
        return self._beside.submit(copy_context().run, self._timed, requests, errands)

    def _timed(self, requests: Sequence[_In], errands: Sequence[BatchItem[_Out]]) -> Sequence[_Out]:
        with self._one_at_a_time:
            began = self._loan.clock()
            done = self._here(requests)
            self._loan.measure(self._work, sum(errand.wanted.texts for errand in errands), self._loan.clock() - began)
            return done


class _Batch(Generic[_In, _Out]):
    """A batch of which something is elsewhere."""

    def __init__(
        self,
        loan: EncoderOffload,
        work: Work,
        requests: Sequence[_In],
        errands: Sequence[BatchItem[_Out]],
        owed: list[int],
        trips: dict[int, _Trip[_Out]],
        begin_here: Callable[[Sequence[_In], Sequence[BatchItem[_Out]]], Future[Sequence[_Out]]],
    ) -> None:
        self._loan = loan
        self._work = work
        self._requests = requests
        self._errands = errands
        self._owed = owed
        self._trips = trips
        self._begin_here = begin_here
        self._done: dict[int, _Out] = {}
        self._local: Future[Sequence[_Out]] | None = None
        self._local_of: list[int] = []

    def finish(self) -> list[_Out]:
        """Waits until all of it is done."""
        try:
            while len(self._done) < len(self._requests):
                self._go_on_here()
                pending: list[Future[Any]] = [trip.future for trip in self._trips.values()]
                if self._local is not None:
                    pending.append(self._local)
                wait(pending, self._next_look(), FIRST_COMPLETED)
                self._take_local()
                self._take_trips()
        finally:
            for trip in self._trips.values():
                self._drop(trip)
            if self._local is not None:
                self._local.cancel()  # where it has begun, nobody hears what comes of it
        return [self._done[index] for index in range(len(self._requests))]

    def _go_on_here(self) -> None:
        if self._local is None and self._owed:
            self._local_of, self._owed = self._owed, []
            self._local = self._begin_here(
                [self._requests[index] for index in self._local_of], [self._errands[index] for index in self._local_of]
            )

    def _take_local(self) -> None:
        if self._local is None or not self._local.done():
            return
        local, self._local = self._local, None
        for index, out in zip(self._local_of, local.result(), strict=True):
            if index not in self._done:
                self._done[index] = out
                if (trip := self._trips.pop(index, None)) is not None:
                    self._drop(trip)
        self._local_of = []

    def _take_trips(self) -> None:
        now = self._loan.clock()
        for index, trip in tuple(self._trips.items()):
            if trip.future.done():
                del self._trips[index]
                self._come_back(index, trip, now)
            elif trip.hedge_at is not None and now >= trip.hedge_at:
                trip.hedge_at = None
                if not self._has_it_here(index):
                    trip.hedged = True
                    context = self._errands[index].wanted.context
                    self._loan.courier.announcer.hedged(context, self._work, now - trip.started, now)
                    self._owed.append(index)

    def _come_back(self, index: int, trip: _Trip[_Out], now: float) -> None:
        try:
            self._done[index] = trip.future.result()
            return
        except EdgeRagError as error:
            problem = str(error)
        except CancelledError:
            problem = "the daemon is shutting down"
        if not self._has_it_here(index):
            wanted = self._errands[index].wanted
            announcer = self._loan.courier.announcer
            announcer.taken_over(wanted.context, self._work, trip.desk.name, problem, wanted.texts, now)
            self._owed.append(index)

    def _has_it_here(self, index: int) -> bool:
        return index in self._local_of or index in self._owed

    def _drop(self, trip: _Trip[_Out]) -> None:
        trip.future.cancel()
        if trip.hedged:
            dispatch, desk = self._loan.courier.dispatch, trip.desk.desk
            dispatch.post(lambda: dispatch.went_wrong(desk, "this box was asked later and was done first", busy=False))

    def _next_look(self) -> float | None:
        now = self._loan.clock()
        looks = [trip.hedge_at for trip in self._trips.values() if trip.hedge_at is not None]
        return max(0.0, min(looks) - now) if looks else None
