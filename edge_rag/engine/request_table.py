"""The requests that an engine has, from the moment they enter until they are over. For the engine's thread only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress

from edge_rag.engine.command_queue import CommandQueue, DrainRate
from edge_rag.engine.events import EventRecorder
from edge_rag.engine.kv_cache.block_pool import BlockPool
from edge_rag.engine.kv_cache.disk.pending import PendingLoads
from edge_rag.engine.passage_warmup import PassageWarmup
from edge_rag.engine.ports import StepObserver
from edge_rag.engine.request import ActiveRequest, TokenRequest
from edge_rag.engine.scheduling.plan import StepPlan
from edge_rag.engine.scheduling.scheduler import Scheduler
from edge_rag.engine.sequence import Sequence, SequenceId, Status, domain_key
from edge_rag.errors import DeadlineExceeded, EdgeRagError, InferenceFailed, NotReady, SlowConsumer


class RequestTable:
    """Lets requests in, has them say what was chosen, holds them, and ends them.

    Args:
        scheduler: Runs them.
        pool: Their pages.
        awaiting: Holds those back whose pages come from disk.
        warming: Holds those back whose passages are computed first.
        inbox: Counts those that wait for a first slot.
        announcer: Told what becomes of them.
        observer: Told when one is over.
        drain_rate: Told when one left.
        counts: Counter[str].
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        pool: BlockPool,
        awaiting: PendingLoads,
        warming: PassageWarmup,
        inbox: CommandQueue,
        announcer: EventRecorder,
        observer: StepObserver,
        drain_rate: DrainRate,
        counts: Counter[str],
        clock: Callable[[], float],
    ) -> None:
        self._scheduler = scheduler
        self._pool = pool
        self._awaiting = awaiting
        self._warming = warming
        self._inbox = inbox
        self._announcer = announcer
        self._observer = observer
        self._drain_rate = drain_rate
        self._counts = counts
        self._clock = clock
        self._live: dict[SequenceId, ActiveRequest] = {}
        self._epochs: dict[str, int] = {}
        self._said = 0
        self._gaps: list[float] = []

    @property
    def live(self) -> Mapping[SequenceId, ActiveRequest]:
        """Those that are not over, by sequence."""
        return self._live

    def running(self) -> Iterator[ActiveRequest]:
        """Yields those with a slot, best rank first."""
        return (self._live[s.id] for s in self._scheduler.running if s.id in self._live)

    def sequences(self, plan: StepPlan) -> dict[SequenceId, Sequence]:
        """Returns the sequences of a step, those of passages computed alone among them."""
        alone = self._warming.sequences
        return {i: alone[i] if i in alone else self._live[i].sequence for i in (e.sequence for e in plan.entries)}

    def enter(self, request: ActiveRequest) -> None:
        """Lets a request in; one that the constraint decides by itself is over at once."""
        self._live[request.sequence.id] = request
        if self.is_over(request.request):
            request.sequence.exclude_from_cache()
        if self.append(request, ()) and not self._awaiting.hold(request):
            self._admit(request)

    def enter_awaited(self) -> None:
        """Lets those go on whose pages came from disk, or did not come in time."""
        for request in self._awaiting.ready():
            self._admit(request)

    def submit(self, ready: Iterable[SequenceId]) -> None:
        """Gives requests to the scheduler that need wait for nothing else."""
        for request in [self._live[i] for i in ready]:
            self._scheduler.submit(request.sequence, request.submitted)
            if request.paused_since is not None:
                self._scheduler.pause(request.sequence)

    def hold(self, held: Mapping[SequenceId, bool]) -> None:
        """Pauses requests and lets others go on; ids of requests that are over are passed by."""
        now = self._clock()
        for request, pause in [(self._live[i], pause) for i, pause in held.items() if i in self._live]:
            if pause and request.paused_since is None:
                request.paused_since = now
                request.lost_slot(now)
                # One that still waits for pages from disk or for its passages is paused once it has them.
                comes = request.sequence.status is Status.NEW
                self._announcer.paused(request, {} if comes else self._scheduler.pause(request.sequence), now)
            elif not pause and request.paused_since is not None:
                request.paused_since = None
                if request.sequence.status is Status.PAUSED:
                    self._scheduler.resume(request.sequence, now)

    def forget(self, trust_domain: str, epoch: int) -> None:
        """Drops what is cached of a trust domain's epochs before this one; its requests of these withdraw."""
        self._epochs[trust_domain] = max(epoch, self._epochs.get(trust_domain, 0))
        for request in self._live.values():
            if request.request.trust_domain == trust_domain and self.is_over(request.request):
                request.sequence.exclude_from_cache()
        current = domain_key(trust_domain, self._epochs[trust_domain])
        for domain in self._pool.domains | self._warming.domains:
            if domain.startswith(domain_key(trust_domain)) and domain != current:
                self.submit(self._warming.forget(domain))
                self._pool.forget(domain)

    def is_over(self, request: TokenRequest) -> bool:
        """Whether a request may hold text that was removed: its epoch has ended."""
        return request.epoch < self._epochs.get(request.trust_domain, 0)

    def planned(self, plan: StepPlan, now: float) -> list[ActiveRequest]:
        """Notes who got a slot and who lost one; returns who got one."""
        self._announcer.planned(plan.events, self._live, now)
        self._counts["preemptions"] += len(plan.preempted)
        admitted = [self._live[i] for i in plan.admitted if i in self._live]
        for request in admitted:
            if request.started is None:
                self._inbox.dequeued(request.request.most_tokens)
            request.took_slot(now)
        for request in [self._live[i] for i in plan.preempted if i in self._live]:
            if request.sequence.status is not Status.RUNNING:
                request.lost_slot(now)
        return admitted

    def append(self, request: ActiveRequest, tokens: tuple[int, ...]) -> bool:
        """Adds tokens to an answer and ends it where it ends; returns whether it goes on."""
        before = request.sequence.generated
        try:
            reason = request.append(tokens)
        except Exception as error:  # noqa: BLE001 - a constraint's or a sink's failure is that request's own
            problem = f"the answer could not be continued: {error!r}"
            own = error if isinstance(error, EdgeRagError) else failure_of(problem, error)
            self.drop([request.sequence.id], lambda: own)
            return False
        if request.sequence.generated > before:
            said = request.sequence.generated - before
            self._counts["generated_tokens"] += said
            self._said += said
            if (gap := request.emitted(self._clock())) is not None:
                self._gaps.append(gap)
        if reason is not None:
            now = self._clock()
            self._leave(request, now, completed=True)
            self._counts["completed"] += 1
            self._announcer.finished(request, reason, now)
            with suppress(Exception):
                request.sink.finish(request.outcome(reason, now))
        return reason is None

    def take_said(self) -> tuple[int, tuple[float, ...]]:
        """Returns how many tokens were said since the last call, and the gaps before them, seconds."""
        said, gaps = self._said, tuple(self._gaps)
        self._said, self._gaps = 0, []
        return said, gaps

    def drop(self, ids: Iterable[SequenceId], error: Callable[[], EdgeRagError]) -> None:
        """Ends requests badly; ids of requests that are over are passed by."""
        for request in [self._live[i] for i in dict.fromkeys(ids) if i in self._live]:
            now, why = self._clock(), error()
            self._leave(request, now, completed=False)
            self._counts["failed"] += 1
            self._announcer.given_up(request, why, now)
            with suppress(Exception):
                request.sink.fail(why)

    def drop_late(self, pause_s: float) -> None:
        """Ends requests whose deadline has passed, and those whose readers did not keep up for too long.

        Args:
            pause_s: Longest time that a request is paused, seconds.
        """
        now = self._clock()
        live = self._live.items()
        expired = [i for i, r in live if r.request.deadline is not None and now >= r.request.deadline]
        self.drop(expired, lambda: DeadlineExceeded("generator"))
        unread = [i for i, r in live if r.paused_since is not None and r.paused_since <= now - pause_s]
        self.drop(unread, lambda: SlowConsumer(pause_s))

    def abandon(self) -> None:
        """Ends whatever is unfinished; nothing comes after it."""
        self._inbox.close(abort=True)
        for request in self._inbox.drain():
            self._live[request.sequence.id] = request
        self.drop(tuple(self._live), lambda: NotReady("the generator is shutting down"))

    def _admit(self, request: ActiveRequest) -> None:
        """Gives a request to the scheduler, or has its passages computed first."""
        if not self._warming.hold(request.sequence, request.submitted):
            self.submit([request.sequence.id])

    def _leave(self, request: ActiveRequest, now: float, completed: bool) -> None:
        """Gives back all that a request holds, before anyone hears that it is over."""
        del self._live[request.sequence.id]
        self._awaiting.drop(request)
        self._scheduler.remove([request.sequence])
        self._warming.left(request.sequence.id)
        if request.sequence.excluded:
            self._pool.forget(request.sequence.trust_domain)
        if request.started is None:
            self._inbox.dequeued(request.request.most_tokens)
        self._drain_rate.left(now, others_wait=self._inbox.waiting > 0, tokens=request.request.most_tokens)
        self._observer.on_request(request.report(now, completed))


def failure_of(problem: str, cause: Exception) -> InferenceFailed:
    """Returns the failure that a request ends with where something broke that knows no better."""
    failure = InferenceFailed(problem)
    failure.__cause__ = cause
    return failure
