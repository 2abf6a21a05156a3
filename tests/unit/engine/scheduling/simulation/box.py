"""A box under load: the real scheduler and page pool, a modelled clock."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from math import inf

from edge_rag.core.monitoring.event import AuditEventKind
from edge_rag.core.query import Priority
from edge_rag.engine.kv_cache.block_pool import BlockPool
from edge_rag.engine.kv_cache.reservation import Reservation
from edge_rag.engine.scheduling.plan import StepPlan
from edge_rag.engine.scheduling.policy import SchedulerLimits, pause_after_step_s, throttled_limits
from edge_rag.engine.scheduling.scheduler import Scheduler
from edge_rag.engine.sequence import Sequence, SequenceId
from edge_rag.throttle.policy import ThrottlePolicy
from tests.unit.engine.scheduling.simulation.arrivals import Arrival
from tests.unit.engine.scheduling.simulation.heat import Board, WarmBoard
from tests.unit.engine.scheduling.simulation.step_time import StepTime


class Policy(Enum):
    """How requests are presented to the scheduler.

    FAIR: as they are. FCFS: as if all were one client's and of one class, so that only arrival counts.
    """

    FAIR = "fair"
    FCFS = "fcfs"


@dataclass(frozen=True, slots=True)
class Box:
    """What is simulated.

    Attributes:
        limits: How large a step may be.
        pages: Pages in the cache.
        page_tokens: Tokens a page holds.
        max_context: Most tokens of a sequence.
        step_time: How long a step takes.
        queue: Most requests that may wait; more are refused.
        aging_s: Waiting time that raises a request by a class, seconds.
        board: Thermal model; None for a machine that does not get warm.
        throttle: Makes the throttle of a warm machine; None for no throttling.
    """

    limits: SchedulerLimits
    pages: int
    page_tokens: int
    max_context: int
    step_time: StepTime
    queue: int
    aging_s: float = 30.0
    board: Board | None = None
    throttle: Callable[[], ThrottlePolicy] | None = None


@dataclass(slots=True)
class Record:
    """Results of the finished requests, one value each, and of the machine.

    Attributes:
        clients: Names of clients, in order of appearance.
        client: Index into ``clients``.
        priority: Class it came in.
        queue_s: Waiting for the first slot.
        first_token_s: From arrival to the first token.
        completion_s: From arrival to the last token.
        slowdown: Completion time by that of the same request alone on the box.
        served_tokens: Tokens of the finished requests of each client, prompts and answers.
        active_s: How long each client had requests on the box.
        refused: Requests turned away.
        preemptions: By reason.
        steps: Steps.
        tokens: Tokens computed.
        output_tokens: Tokens generated.
        seconds: Modelled time.
        slot_s: Time by usable slots, while requests waited.
        busy_s: The same by busy slots.
        peak_pages: Most pages held at a time.
        throttle_moves: Times heat moved it.
        hottest_c: Highest temperature; 0 for a box that does not get warm.
        slowed_s: How long the hardware slowed itself down.
    """

    clients: dict[str, int] = field(default_factory=dict)
    client: array[int] = field(default_factory=lambda: array("l"))
    priority: array[int] = field(default_factory=lambda: array("b"))
    queue_s: array[float] = field(default_factory=lambda: array("d"))
    first_token_s: array[float] = field(default_factory=lambda: array("d"))
    completion_s: array[float] = field(default_factory=lambda: array("d"))
    slowdown: array[float] = field(default_factory=lambda: array("d"))
    served_tokens: Counter[str] = field(default_factory=Counter)
    active_s: dict[str, float] = field(default_factory=dict)
    refused: int = 0
    preemptions: Counter[str] = field(default_factory=Counter)
    steps: int = 0
    tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0
    slot_s: float = 0.0
    busy_s: float = 0.0
    peak_pages: int = 0
    throttle_moves: int = 0
    hottest_c: float = 0.0
    slowed_s: float = 0.0

    @property
    def finished(self) -> int:
        """Requests that finished."""
        return len(self.completion_s)

    @property
    def occupancy(self) -> float:
        """Busy by usable slots while requests waited; 1 if none ever did."""
        return self.busy_s / self.slot_s if self.slot_s else 1.0


@dataclass(slots=True)
class _Request:
    arrival: Arrival
    sequence: Sequence
    started: float | None = None
    first_token: float | None = None


class Simulation:
    """One run of a box."""

    def __init__(self, box: Box, policy: Policy) -> None:
        self._box = box
        self._policy = policy
        self._pool = BlockPool(box.pages, box.page_tokens)
        aging = box.aging_s if policy is Policy.FAIR else inf
        self._scheduler = Scheduler(box.limits, self._pool, box.max_context, aging)
        throttle = None if box.throttle is None else box.throttle()
        self._board_model = None if box.board is None else WarmBoard(box.board, throttle, self._set_throttle)
        self._share = 1.0
        self._requests: dict[SequenceId, _Request] = {}
        self._present: Counter[str] = Counter()
        self._since: dict[str, float] = {}
        self._waiting = 0
        self._came = 0
        self._now = 0.0
        self.record = Record()

    def run(self, trace: Iterable[Arrival]) -> Record:
        """Lets requests come until there are no more, and finishes them all."""
        coming = iter(trace)
        following = next(coming, None)
        while following is not None or not self._scheduler.idle:
            if self._scheduler.idle and following is not None:
                self._now = max(self._now, following.at_s)
                if self._board_model is not None:
                    self._board_model.rest_until(self._now)
            while following is not None and following.at_s <= self._now:
                self._enter(following)
                following = next(coming, None)
            if not self._scheduler.idle:
                self._step()
        self.record.seconds = self._now
        if (warm := self._board_model) is not None:
            self.record.throttle_moves, self.record.slowed_s = warm.moves, warm.slowed_s
            self.record.hottest_c = warm.hottest_c
        return self.record

    def _set_throttle(self, share: float) -> None:
        self._share = share
        self._scheduler.limit(throttled_limits(self._box.limits, share))

    def _enter(self, arrival: Arrival) -> None:
        if self._waiting >= self._box.queue:
            self.record.refused += 1
            return
        self._came += 1
        if not self._present[arrival.client]:
            self._since[arrival.client] = arrival.at_s
        self._present[arrival.client] += 1
        name = SequenceId(self._came)
        fair = self._policy is Policy.FAIR
        # Tokens that no other request begins with: nothing is shared, so that only the order is compared.
        tokens = [self._came, *range(1, arrival.prompt_tokens)]
        sequence = Sequence(
            name,
            arrival.priority if fair else Priority.NORMAL,
            "d",
            tokens,
            arrival.max_tokens,
            client=arrival.client if fair else "",
            arrived=arrival.at_s,
            deadline=None,
        )
        self._requests[name] = _Request(arrival, sequence)
        self._scheduler.submit(sequence, self._now)
        self._waiting += 1

    def _step(self) -> None:
        record, scheduler = self.record, self._scheduler
        plan = scheduler.schedule(self._now)
        self._note(plan)
        busy, usable = len(scheduler.running), scheduler.limits.max_slots
        spent = self._box.step_time.of(plan.entries)
        if self._board_model is not None:
            spent *= self._board_model.factor
            self._board_model.work(spent, plan.tokens)
            rest = pause_after_step_s(self._share, spent)
            self._board_model.rest_until(self._board_model.now + rest)
            spent += rest
        with Reservation(self._pool, plan) as pages:
            pages.commit()
        scheduler.commit(plan)
        record.peak_pages = max(record.peak_pages, self._pool.pages - self._pool.available)
        record.steps += 1
        record.tokens += plan.tokens
        if self._waiting:
            record.slot_s += spent * usable
            record.busy_s += spent * min(busy, usable)
        self._now += spent
        for entry in plan.entries:
            if entry.wants_logits:
                self._emit(self._requests[entry.sequence])

    def _note(self, plan: StepPlan) -> None:
        for event in plan.events:
            request = self._requests[event.sequence]
            if event.kind is AuditEventKind.ADMITTED:
                request.started = self._now
                self._waiting -= 1
            elif event.kind is AuditEventKind.PREEMPTED:
                self.record.preemptions[event.reason] += 1

    def _emit(self, request: _Request) -> None:
        sequence, arrival, record = request.sequence, request.arrival, self.record
        sequence.tokens.append(7)
        record.output_tokens += 1
        if request.first_token is None:
            request.first_token = self._now
        if sequence.generated < arrival.output_tokens:
            return
        self._scheduler.remove([sequence])
        del self._requests[sequence.id]
        self._count_service(arrival)
        taken = self._now - arrival.at_s
        started = self._now if request.started is None else request.started
        alone = self._box.step_time.alone(
            arrival.prompt_tokens, arrival.output_tokens, self._box.limits.max_step_tokens
        )
        record.client.append(record.clients.setdefault(arrival.client, len(record.clients)))
        record.priority.append(arrival.priority)
        record.queue_s.append(started - arrival.at_s)
        record.first_token_s.append(request.first_token - arrival.at_s)
        record.completion_s.append(taken)
        record.slowdown.append(taken / alone)

    def _count_service(self, arrival: Arrival) -> None:
        client, record = arrival.client, self.record
        record.served_tokens[client] += arrival.prompt_tokens + arrival.output_tokens
        self._present[client] -= 1
        if not self._present[client]:
            record.active_s[client] = record.active_s.get(client, 0.0) + self._now - self._since[client]
