"""The engine's requests, from the time the engine's thread takes them until they are over. For that thread only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress

from edge_rag.engine.command_queue import CommandQueue
from edge_rag.engine.events import EventRecorder
from edge_rag.engine.kv_cache.block_pool import BlockPool
from edge_rag.engine.passage_warmup import PassageWarmup
from edge_rag.engine.request import ActiveRequest
from edge_rag.engine.scheduling.plan import StepPlan
from edge_rag.engine.scheduling.scheduler import Scheduler
from edge_rag.engine.sequence import SequenceId, Status, domain_key
from edge_rag.errors import DeadlineExceeded, EdgeRagError, InferenceFailed, NotReady, SlowConsumer


class DomainEpochs:
    """The current epoch of each trust domain; an epoch ends when text of the domain is removed. One thread."""

    def __init__(self) -> None:
        self._epochs: dict[str, int] = {}

    def advance(self, trust_domain: str, epoch: int) -> int:
        self._epochs[trust_domain] = current = max(epoch, self._epochs.get(trust_domain, 0))
        return current

    def is_over(self, trust_domain: str, epoch: int) -> bool:
        """Whether an epoch has ended, so that a prompt of it may hold text that was removed."""
        return epoch < self._epochs.get(trust_domain, 0)


class RequestTable:
    """Admits requests, appends tokens to their answers, pauses them, and ends them."""

    def __init__(
        self,
        scheduler: Scheduler,
        pool: BlockPool,
        commands: CommandQueue,
        events: EventRecorder,
        clock: Callable[[], float],
    ) -> None:
        self._scheduler = scheduler
        self._pool = pool
        self._epochs = DomainEpochs()
        self._warmup = PassageWarmup(scheduler, pool, commands.new_id)
        self._commands = commands
        self._events = events
        self._clock = clock
        self._active: dict[SequenceId, ActiveRequest] = {}
        self._gaps: list[float] = []

    @property
    def active(self) -> Mapping[SequenceId, ActiveRequest]:
        """Requests that are not over, by sequence."""
        return self._active

    def running(self) -> Iterator[ActiveRequest]:
        return (self._active[s.id] for s in self._scheduler.running if s.id in self._active)

    def enter(self, request: ActiveRequest) -> None:
        self._active[request.sequence.id] = request
        if self._epochs.is_over(request.request.trust_domain, request.request.epoch):
            request.sequence.exclude_from_cache()
        if self.append(request, ()) and not self._warmup.hold(request):
            self._schedule((request,))

    def begin_step(self) -> None:
        if self._warmup.warmups and self._scheduler.batch_held:
            self._schedule(self._warmup.end_batch())

    def apply(self, plan: StepPlan, now: float) -> list[ActiveRequest]:
        """Records which requests got or lost a slot; returns those that got one."""
        self._events.scheduled(plan, self._active, now)
        admitted = [self._active[i] for i in plan.admitted if i in self._active]
        for request in admitted:
            if request.started is None:
                self._commands.dequeued(request.request.total_tokens)
            request.got_slot(now)
        for request in [self._active[i] for i in plan.preempted if i in self._active]:
            if request.sequence.status is not Status.RUNNING:
                request.lost_slot(now)
        return admitted

    def end_step(self, plan: StepPlan) -> None:
        if self._warmup.warmups:
            self._schedule(self._warmup.end_step(plan))

    def fail_step(self, plan: StepPlan, problem: str, cause: Exception) -> None:
        self.drop([entry.sequence for entry in plan.entries], lambda: _failure(problem, cause))
        self._schedule(self._warmup.fail_step(plan))

    def append(self, request: ActiveRequest, tokens: tuple[int, ...]) -> bool:
        """Appends tokens to an answer; returns False if it ended."""
        before = request.sequence.generated
        try:
            reason = request.append(tokens)
        except Exception as error:  # noqa: BLE001 - a failure of its constraint or sink concerns this request only
            problem = f"the answer could not be continued: {error!r}"
            failure = error if isinstance(error, EdgeRagError) else _failure(problem, error)
            self.drop([request.sequence.id], lambda: failure)
            return False
        if request.sequence.generated > before:
            self._events.counters["generated_tokens"] += request.sequence.generated - before
            if (gap := request.emitted(self._clock())) is not None:
                self._gaps.append(gap)
        if reason is not None:
            now = self._clock()
            self._remove(request, now, completed=True)
            self._events.finished(request, reason, now)
            with suppress(Exception):
                request.sink.finish(request.outcome(reason, now))
        return reason is None

    def take_gaps(self) -> tuple[float, ...]:
        """Returns the times between emissions of one request since the last call, seconds."""
        gaps, self._gaps = tuple(self._gaps), []
        return gaps

    def set_paused(self, paused: Mapping[SequenceId, bool]) -> None:
        """Pauses and resumes requests; ids of requests that are over have no effect."""
        now = self._clock()
        for request, pause in [(self._active[i], pause) for i, pause in paused.items() if i in self._active]:
            if pause and request.paused_since is None:
                request.paused_since = now
                request.lost_slot(now)
                # A request that waits for its passages is paused once it enters the scheduler.
                is_held = request.sequence.status is Status.NEW
                self._events.paused(request, {} if is_held else self._scheduler.pause(request.sequence), now)
            elif not pause and request.paused_since is not None:
                request.paused_since = None
                if request.sequence.status is Status.PAUSED:
                    self._scheduler.resume(request.sequence, now)

    def forget(self, trust_domain: str, epoch: int) -> None:
        """Invalidates the cached pages of a trust domain's epochs before this one; their requests leave none behind."""
        current = domain_key(trust_domain, self._epochs.advance(trust_domain, epoch))
        for request in self._active.values():
            domain, own_epoch = request.request.trust_domain, request.request.epoch
            if domain == trust_domain and self._epochs.is_over(domain, own_epoch):
                request.sequence.exclude_from_cache()
        every = domain_key(trust_domain)

        def is_ended(domain: str) -> bool:
            return domain.startswith(every) and domain != current

        self._schedule(self._warmup.forget(is_ended))
        for domain in self._pool.domains:
            if is_ended(domain):
                self._pool.forget(domain)

    def drop(self, ids: Iterable[SequenceId], error: Callable[[], EdgeRagError]) -> None:
        for request in [self._active[i] for i in dict.fromkeys(ids) if i in self._active]:
            now, failure = self._clock(), error()
            self._remove(request, now, completed=False)
            self._events.failed(request, failure, now)
            with suppress(Exception):
                request.sink.fail(failure)

    def cancel(self, sequence: SequenceId, error: EdgeRagError) -> None:
        self.drop([sequence], lambda: error)

    def drop_expired(self, pause_s: float) -> None:
        """Ends requests whose deadline has passed or that were paused for longer than ``pause_s`` seconds."""
        now = self._clock()
        active = self._active.items()
        expired = [i for i, r in active if r.request.deadline is not None and now >= r.request.deadline]
        self.drop(expired, lambda: DeadlineExceeded("generator"))
        slow = [i for i, r in active if r.paused_since is not None and r.paused_since <= now - pause_s]
        self.drop(slow, lambda: SlowConsumer(pause_s))

    def abort(self) -> None:
        self._commands.close(abort=True)
        for request in self._commands.drain():
            self._active[request.sequence.id] = request
        self.drop(tuple(self._active), lambda: NotReady("the generator is shutting down"))

    def _schedule(self, requests: Iterable[ActiveRequest]) -> None:
        for request in requests:
            self._scheduler.submit(request.sequence, request.submitted)
            if request.paused_since is not None:
                self._scheduler.pause(request.sequence)

    def _remove(self, request: ActiveRequest, now: float, completed: bool) -> None:
        """Frees everything that a request holds, before its end is reported."""
        del self._active[request.sequence.id]
        self._scheduler.remove([request.sequence])
        if self._warmup.warmups:
            self._warmup.remove(request)
        if request.sequence.excluded:
            self._pool.forget(request.sequence.trust_domain)
        tokens = request.request.total_tokens
        if request.started is None:
            self._commands.dequeued(tokens)
        self._commands.finished(tokens, now)
        self._events.over(request, now, completed)


def _failure(problem: str, cause: Exception) -> InferenceFailed:
    failure = InferenceFailed(problem)
    failure.__cause__ = cause
    return failure
