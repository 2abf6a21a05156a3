"""Iteration-level scheduling: which sequences run in the next step, with how many tokens, and which are preempted."""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterable

from edge_rag.core.limits.fair_share import VirtualService
from edge_rag.core.monitoring.event import AuditEventKind
from edge_rag.core.query import Priority
from edge_rag.engine.kv_cache.block_pool import BlockPool
from edge_rag.engine.scheduling.plan import PlanEntry, PreemptionReason, SchedulingEvent, StepPlan
from edge_rag.engine.scheduling.policy import (
    AdmissionCheck,
    SchedulerLimits,
    can_admit,
    choose_victim,
    copy_plan,
    displaceable,
    revoke,
    split_tokens,
    with_drafts,
    with_several,
)
from edge_rag.engine.scheduling.request_queue import GENERATED_WEIGHT, PROMPT_WEIGHT, WaitingQueue
from edge_rag.engine.sequence import (
    Sequence,
    SequenceId,
    Status,
    WaitReason,
    copied_tokens,
    next_copies,
    tokens_until,
)
from edge_rag.errors import RequestTooLarge


class Scheduler:
    """Plans each step. No clock, no I/O: equal calls give equal plans.

    ``WaitingQueue`` orders the waiting sequences. Running ones are ordered by the class in which they were admitted,
    then by arrival; this rank is constant while they run. Pages for growth are taken from the worst rank, so the best
    one advances in every step, and admission made sure that it fits alone: some sequence always finishes. Aging raises
    one waiting sequence of a client after the other until nothing can displace it, so every client is served.

    A sequence displaces others for a slot only by its own class; aging makes it go earlier and keeps it in its slot. A
    request that has only waited for long never interrupts a running one, so aging causes no recomputation. While it
    waits for a slot, a request of a higher class behind it may still displace a running one of a lower class, which
    leaves as many slots as before.

    A sequence that was preempted for want of pages is admitted again only when the others have room to grow by twice as
    many pages as at its last preemption, so it is preempted at most as often as that number can double.

    Args:
        max_context: Longest sequence the model can attend to, tokens.
        aging_s: Time without a slot after which a client's next sequence rises by a class, seconds; infinite for never.
    """

    def __init__(self, limits: SchedulerLimits, pool: BlockPool, max_context: int, aging_s: float) -> None:
        self._limits = limits
        self._pool = pool
        self._capacity = min(max_context, pool.pages * pool.page_tokens)
        self._service = {priority: VirtualService() for priority in Priority}
        self._waiting = WaitingQueue(self._service, aging_s)
        self._running: list[Sequence] = []
        self._batch_held = False
        self._arrived: list[Sequence] = []  # since the last step
        self._head: Sequence | None = None  # of the queue, at the last step

    @property
    def capacity(self) -> int:
        """Most tokens a sequence may come to, prompt and answer together."""
        return self._capacity

    @property
    def limits(self) -> SchedulerLimits:
        return self._limits

    @property
    def running(self) -> tuple[Sequence, ...]:
        return tuple(self._running)

    @property
    def waiting(self) -> tuple[Sequence, ...]:
        """Sequences without a slot, next first, preempted ones included. Sorts, so not for every step."""
        return tuple(self._waiting)

    @property
    def idle(self) -> bool:
        return not self._running and self._next() is None

    @property
    def batch_held(self) -> bool:
        return self._batch_held

    def hold_batch(self, held: bool) -> None:
        """Makes sequences of the batch class wait, running ones too, until called with False."""
        self._batch_held = held

    def sequences(self, plan: StepPlan) -> dict[SequenceId, Sequence]:
        planned = {entry.sequence for entry in plan.entries}
        return {s.id: s for s in self._running if s.id in planned}

    def limit(self, limits: SchedulerLimits) -> None:
        """Changes the size of a step; if more slots are taken, none is given until enough are free."""
        self._limits = limits

    def check(self, prompt_tokens: int, max_tokens: int) -> None:
        """Refuses a sequence that could never run."""
        if prompt_tokens + max_tokens > self._capacity:
            raise RequestTooLarge("tokens", prompt_tokens + max_tokens, self._capacity)

    def submit(self, sequence: Sequence, now: float) -> None:
        """Adds a new sequence at ``now`` seconds."""
        self.check(sequence.prompt_tokens, sequence.max_tokens)
        self._enqueue(sequence, now)

    def pause(self, sequence: Sequence) -> dict[str, float]:
        """Takes a sequence out until ``resume``; its computed pages may stay in the prefix cache."""
        numbers = {"computed_tokens": sequence.computed, "pages_held": self._pool.held(sequence.id)}
        if sequence.status is Status.RUNNING:
            self._release(sequence)
        else:
            self._waiting.discard(sequence)
        self._service[sequence.level].leave(sequence.client)
        sequence.status = Status.PAUSED
        return {**numbers, "pages_available": self._pool.available}

    def resume(self, sequence: Sequence, now: float) -> None:
        """Makes a paused sequence wait for a slot again, at ``now`` seconds."""
        sequence.wait_reason = None
        self._enqueue(sequence, now)

    def schedule(self, now: float) -> StepPlan:
        """Plans the next step: admits sequences, divides the tokens, preempts where pages run out.

        Args:
            now: Seconds; not before an earlier call's.

        Returns:
            The plan; without entries only if there is nothing to run.
        """
        events: list[SchedulingEvent] = []
        self._waiting.age(now)
        if self._batch_held:
            for sequence in [s for s in self._running if s.priority is Priority.BATCH]:
                self._preempt(sequence, PreemptionReason.MEMORY, None, now, events)
        self._admit_waiting(now, events)
        owners = [(s.level, s.client) for s in self._running]
        shares = split_tokens([s.pending for s in self._running], self._limits, owners)
        counts = dict(zip((s.id for s in self._running), shares, strict=True))
        entries: list[PlanEntry] = []
        reserved = 0
        for sequence in tuple(self._running):
            if sequence.status is not Status.RUNNING or not counts[sequence.id]:
                continue
            count, pages = self._secure_pages(sequence, counts[sequence.id], reserved, now, events)
            if count:
                copies = next_copies(sequence.computed, count, sequence.copies)
                wants_logits = sequence.needs_logits and count == sequence.pending
                entries.append(PlanEntry(sequence.id, sequence.computed, count, wants_logits, copies=copies))
                reserved += pages
        drafts = {s.id: len(s.draft) for s in self._running if s.draft}
        planned = with_drafts(entries, drafts, reserved, self._limits.max_step_tokens, self._pool)
        return StepPlan(planned, tuple(events))

    def commit(self, plan: StepPlan) -> None:
        ends = plan.ends({})
        for sequence in self._running:
            if sequence.id in ends:
                sequence.steps += 1
                self._advance(sequence, ends[sequence.id])

    def accept(self, sequence: Sequence, tokens: int) -> None:
        """Records that so many drafted tokens of the last committed step were accepted."""
        self._advance(sequence, sequence.computed + tokens)

    def remove(self, sequences: Iterable[Sequence]) -> None:
        """Takes out sequences that are over, and frees their pages."""
        for sequence in sequences:
            if sequence.status is Status.RUNNING:
                self._running.remove(sequence)
                self._service[sequence.level].leave(sequence.client)
            elif sequence.status is Status.WAITING:
                self._waiting.discard(sequence)
                self._service[sequence.level].leave(sequence.client)
            sequence.status = Status.FINISHED
            self._pool.release(sequence.id)

    def _enqueue(self, sequence: Sequence, now: float) -> None:
        sequence.status = Status.WAITING
        self._service[sequence.level].enter(sequence.client)
        self._waiting.add(sequence, now)
        self._arrived.append(sequence)

    def _next(self) -> Sequence | None:
        return self._waiting.first_above(Priority.BATCH) if self._batch_held else self._waiting.first()

    def _admit_waiting(self, now: float, events: list[SchedulingEvent]) -> None:
        """Admits waiting sequences in order, while there are slots and pages, free or of lower classes."""
        check: AdmissionCheck | None = None
        while (head := self._next()) is not None:
            check = self._check(head)
            if check.lack is None:
                self._admit(head, check, now, events)
                continue
            if self._preempt_for(head, now, events):
                continue
            urgent = self._waiting.first_above(head.priority) if head.level < head.priority else None
            if urgent is not None and self._preempt_for(urgent, now, events):
                continue
            if not self._take_share(now, events):
                break
        self._record_waits(head, check, now, events)

    def _record_waits(
        self, head: Sequence | None, check: AdmissionCheck | None, now: float, events: list[SchedulingEvent]
    ) -> None:
        """Records why sequences wait if that is new: the head of the queue, and those behind it."""
        behind = [s for s in self._arrived if s.wait_reason is None]
        if self._head is not None:
            behind.append(self._head)
        for sequence in behind:
            if sequence is not head and sequence.status is Status.WAITING:
                held = self._batch_held and sequence.priority is Priority.BATCH
                self._record_wait(sequence, WaitReason.MEMORY if held else WaitReason.ORDER, {}, now, events)
        if head is not None and check is not None and check.lack is not None:
            self._record_wait(head, check.lack, check.numbers, now, events)
        self._arrived.clear()
        self._head = head

    def _record_wait(
        self,
        sequence: Sequence,
        reason: WaitReason,
        numbers: dict[str, float],
        now: float,
        events: list[SchedulingEvent],
    ) -> None:
        if sequence.wait_reason is not reason:
            sequence.wait_reason = reason
            numbers = {**self._standing(sequence, now), **numbers, "waiting_requests": len(self._waiting)}
            events.append(SchedulingEvent(AuditEventKind.DEFERRED, sequence.id, reason.value, numbers))

    def _admit(self, sequence: Sequence, check: AdmissionCheck, now: float, events: list[SchedulingEvent]) -> None:
        """Gives a sequence a slot and the cached pages of its prefix."""
        numbers = {**self._standing(sequence, now), **check.numbers, "prompt_tokens": sequence.prompt_tokens}
        self._waiting.admit(sequence, now)
        shared = self._pool.match(sequence.trust_domain, sequence.tokens, sequence.keys)
        self._pool.share(sequence.id, shared)
        sequence.computed = len(shared) * self._pool.page_tokens
        sequence.status = Status.RUNNING
        sequence.wait_reason = None
        insort(self._running, sequence, key=_rank)
        copies = copy_plan(sequence, self._pool, check.pages_free - check.pages_needed)
        sequence.copies, sequence.exact_until = copies, copies[0].start if copies else None
        copied = copied_tokens(copies)
        numbers["cached_tokens"] = sequence.computed
        numbers["copied_tokens"] = copied
        if sequence.admitted:
            numbers["recompute_tokens"] = sequence.pending
            kind, reason = AuditEventKind.RESUMED, "a slot and pages are free again"
        else:
            sequence.admitted = True
            sequence.cached_tokens = sequence.computed
            sequence.copied_tokens = copied
            sequence.charged_tokens = sequence.prompt_tokens
            uncached = sequence.prompt_tokens - sequence.computed - copied
            self._service[sequence.level].charge(sequence.client, PROMPT_WEIGHT * max(0, uncached))
            kind, reason = AuditEventKind.ADMITTED, "a slot and pages are free"
        events.append(SchedulingEvent(kind, sequence.id, reason, numbers))

    def _preempt_for(self, sequence: Sequence, now: float, events: list[SchedulingEvent]) -> bool:
        """Admits a sequence in the place of running ones of a lower class; False if that would not make room."""
        lower = displaceable(self._running, sequence)
        if not lower or self._check(sequence, lower).lack is not None:
            return False
        check = self._check(sequence)
        while True:
            reason = PreemptionReason.SLOT if check.lack is WaitReason.SLOTS else PreemptionReason.PAGES
            self._preempt(choose_victim(self._running), reason, sequence, now, events)
            check = self._check(sequence)
            if check.lack is None:
                self._admit(sequence, check, now, events)
                return True

    def _take_share(self, now: float, events: list[SchedulingEvent]) -> bool:
        """Admits a sequence of a client without a slot in the place of one of a client with several."""
        clients = {each.client for each in self._running}
        if len(clients) == len(self._running):
            return False
        sequence = self._waiting.first_without(clients, batch=not self._batch_held)
        other = None if sequence is None else with_several(self._running, sequence)
        if sequence is None or other is None or self._check(sequence, (other,)).lack is not None:
            return False
        self._preempt(other, PreemptionReason.SHARE, sequence, now, events)
        check = self._check(sequence)
        if check.lack is None:
            self._admit(sequence, check, now, events)
        return check.lack is None

    def _advance(self, sequence: Sequence, computed: int) -> None:
        """Records that the cache holds a sequence up to a position, and charges the client for generated tokens."""
        sequence.computed = computed
        if sequence.copies:
            sequence.copies = tuple(copy for copy in sequence.copies if copy.end > computed)
            if not sequence.copies:
                self._pool.unpin(sequence.id)
        exact = computed if sequence.exact_until is None else min(computed, sequence.exact_until)
        self._pool.register_full(sequence.id, sequence.trust_domain, sequence.tokens, exact, sequence.keys)
        if sequence.computed > sequence.charged_tokens:
            generated = sequence.computed - sequence.charged_tokens
            self._service[sequence.level].charge(sequence.client, GENERATED_WEIGHT * generated)
            sequence.charged_tokens = sequence.computed

    def _check(self, sequence: Sequence, leaving: Collection[Sequence] = ()) -> AdmissionCheck:
        return can_admit(sequence, self._running, leaving, self._limits.max_slots, self._pool)

    def _secure_pages(
        self, sequence: Sequence, count: int, reserved: int, now: float, events: list[SchedulingEvent]
    ) -> tuple[int, int]:
        """Makes room for a sequence's part of the step, by preempting worse ranks if necessary.

        Returns:
            How many tokens it can compute, and how many new pages they need.
        """
        pool = self._pool
        held = pool.held(sequence.id)
        while (pages := pool.pages_for(_end(sequence, count)) - held) > pool.available - reserved:
            if revoke(self._running[self._running.index(sequence) :], pool):
                continue
            victim = choose_victim(self._running)
            if victim is sequence:
                end = (held + pool.available - reserved) * pool.page_tokens
                count = min(count, tokens_until(sequence.computed, end, sequence.copies))
                return count, pool.pages_for(_end(sequence, count)) - held if count else 0
            victim.shortages += 1
            self._preempt(victim, PreemptionReason.SHORTAGE, sequence, now, events)
        return count, pages

    def _preempt(
        self,
        sequence: Sequence,
        reason: PreemptionReason,
        other: Sequence | None,
        now: float,
        events: list[SchedulingEvent],
    ) -> None:
        """Moves a running sequence back to the queue; its computed pages may stay in the prefix cache."""
        numbers = {
            **self._standing(sequence if other is None else other, now),
            "class_of_preempted": sequence.level,
            "computed_tokens": sequence.computed,
            "pages_held": self._pool.held(sequence.id),
            "pages_available": self._pool.available,
        }
        self._release(sequence)
        sequence.preemptions += 1
        sequence.status = Status.WAITING
        self._waiting.add(sequence, now)
        preempted_for = None if other is None else other.id
        events.append(SchedulingEvent(AuditEventKind.PREEMPTED, sequence.id, reason.value, numbers, preempted_for))

    def _release(self, sequence: Sequence) -> None:
        self._running.remove(sequence)
        self._pool.release(sequence.id)
        sequence.computed = 0
        sequence.copies = ()
        sequence.draft = ()

    def _standing(self, sequence: Sequence, now: float) -> dict[str, float]:
        waiting_s = now - sequence.waiting_since if sequence.status is Status.WAITING else 0.0
        return {
            "class": sequence.level,
            "waited_s": sequence.waited_s + waiting_s,
            "client_service_tokens": self._service[sequence.level].service(sequence.client),
            "slots": self._limits.max_slots,
            "slots_busy": len(self._running),
        }


def _end(sequence: Sequence, count: int) -> int:
    """Returns the position after the next ``count`` computed tokens and the copies between them."""
    copies = next_copies(sequence.computed, count, sequence.copies)
    return sequence.computed + count + copied_tokens(copies)


def _rank(sequence: Sequence) -> tuple[int, int]:
    return sequence.rank
