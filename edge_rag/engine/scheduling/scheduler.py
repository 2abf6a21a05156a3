"""Iteration-level scheduling: who is in the next step, with how many tokens, and who has to give way."""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterable
from dataclasses import replace

from edge_rag.core.monitoring.event import AuditEventKind
from edge_rag.core.query import Priority
from edge_rag.engine.kv_cache.block_pool import BlockPool
from edge_rag.engine.kv_cache.page_copy import stretch, within
from edge_rag.engine.scheduling.budget import AdmissionCheck, can_admit, copy_plan, revoke, with_drafts
from edge_rag.engine.scheduling.fair_share import GENERATED_WEIGHT, PROMPT_WEIGHT, VirtualTokenCounter
from edge_rag.engine.scheduling.plan import PlanEntry, PreemptionReason, SchedulingEvent, StepPlan
from edge_rag.engine.scheduling.policy import SchedulerLimits, split_tokens
from edge_rag.engine.scheduling.request_queue import WaitingQueue
from edge_rag.engine.sequence import Sequence, Status, WaitReason
from edge_rag.errors import RequestTooLarge


class Scheduler:
    """Decides each step. No clock, no I/O: equal calls give equal plans.

    Who waits is ordered by ``WaitingQueue``. Who runs is ordered by the class it entered in, then by arrival; that rank
    does not change while it runs. Pages for growth are taken from the worst rank, so the best one advances in every
    step, and admission made sure that it fits alone: somebody always finishes. A client whose requests wait sees one
    after the other rise until nobody can displace it any more, so everybody does.

    A sequence displaces others for a slot only by the class it came in; having risen lets it go first, and keeps it
    where it is once it runs. A request that has merely waited long never interrupts one, so aging costs no
    recomputation. While such a request waits for a slot to come free, a request of a higher class behind it may still
    change places with a running one of a lower class: that leaves it as many slots as before.

    Whoever had to give way because pages ran out comes back only when there is room for the others to grow by twice as
    many pages as the last time, so it is put out at most as often as the number of its neighbours' pages can double.

    Args:
        limits: How large a step may be.
        pool: The pages; the scheduler gives pages back and adopts cached ones, reservations take new ones.
        max_context: Most tokens the model can attend to.
        aging_s: Time without a slot after which a client's next sequence rises by a class, seconds; infinite for never.
    """

    def __init__(self, limits: SchedulerLimits, pool: BlockPool, max_context: int, aging_s: float) -> None:
        self._limits = limits
        self._pool = pool
        self._capacity = min(max_context, pool.pages * pool.page_tokens)
        self._shares = {priority: VirtualTokenCounter() for priority in Priority}
        self._waiting = WaitingQueue(self._shares, aging_s)
        self._running: list[Sequence] = []
        self._batch_held = False
        self._fresh: list[Sequence] = []
        self._head: Sequence | None = None

    @property
    def capacity(self) -> int:
        """Most tokens a sequence may come to, prompt and answer together."""
        return self._capacity

    @property
    def limits(self) -> SchedulerLimits:
        """How large a step may be."""
        return self._limits

    @property
    def running(self) -> tuple[Sequence, ...]:
        """Sequences that hold a slot, best rank first."""
        return tuple(self._running)

    @property
    def waiting(self) -> tuple[Sequence, ...]:
        """Sequences without a slot, the next one first; preempted ones among them. Sorts, so not for every step."""
        return tuple(self._waiting)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do now; who is held may wait."""
        return not self._running and self._next() is None

    def hold_batch(self, held: bool) -> None:
        """Has requests of the batch class wait, those that run too, until they are held no longer."""
        self._batch_held = held

    def resize(self, max_slots: int) -> None:
        """Changes the number of slots; where more are taken, nobody enters until enough have left.

        Raises:
            ConfigurationError: So many do not fit into a step.
        """
        self._limits = replace(self._limits, max_slots=max_slots)

    def limit(self, limits: SchedulerLimits) -> None:
        """Changes how large a step may be; where more slots are taken, nobody enters until enough have left."""
        self._limits = limits

    def check(self, prompt_tokens: int, max_tokens: int) -> None:
        """Refuses what could never run, however long it waited.

        Raises:
            RequestTooLarge: Prompt and answer are longer than the model's context or the cache.
        """
        if prompt_tokens + max_tokens > self._capacity:
            raise RequestTooLarge("tokens", prompt_tokens + max_tokens, self._capacity)

    def submit(self, sequence: Sequence, now: float) -> None:
        """Takes a sequence in.

        Args:
            sequence: A new one.
            now: Seconds.

        Raises:
            RequestTooLarge: It could never run.
        """
        self.check(sequence.prompt_tokens, sequence.max_tokens)
        sequence.status = Status.WAITING
        self._shares[sequence.level].enter(sequence.client)
        self._waiting.add(sequence, now)
        self._fresh.append(sequence)

    def pause(self, sequence: Sequence) -> dict[str, float]:
        """Takes a sequence out until ``resume``; what it had computed may survive in the prefix cache.

        Returns:
            What it gave up, by name.
        """
        gave_up = {"computed_tokens": sequence.computed, "pages_held": self._pool.held(sequence.id)}
        if sequence.status is Status.RUNNING:
            self._empty(sequence)
        else:
            self._waiting.discard(sequence)
        self._shares[sequence.level].leave(sequence.client)
        sequence.status = Status.PAUSED
        return {**gave_up, "pages_available": self._pool.available}

    def resume(self, sequence: Sequence, now: float) -> None:
        """Lets a paused sequence wait for a slot again.

        Args:
            sequence: A paused one.
            now: Seconds.
        """
        sequence.status = Status.WAITING
        sequence.wait_reason = None
        self._shares[sequence.level].enter(sequence.client)
        self._waiting.add(sequence, now)
        self._fresh.append(sequence)

    def schedule(self, now: float) -> StepPlan:
        """Admits, divides the step's tokens, and takes pages away where they run out.

        Args:
            now: Seconds; not before an earlier call's.

        Returns:
            The next step; without entries only if there is nothing to do.
        """
        events: list[SchedulingEvent] = []
        self._waiting.rise(now)
        if self._batch_held:
            for sequence in [s for s in self._running if s.priority is Priority.BATCH]:
                self._preempt(sequence, PreemptionReason.MEMORY, None, now, events)
        self._admit(now, events)
        counts = dict(
            zip(
                (s.id for s in self._running),
                split_tokens([s.pending for s in self._running], self._limits),
                strict=True,
            )
        )
        entries: list[PlanEntry] = []
        promised = 0
        for sequence in tuple(self._running):
            if sequence.status is not Status.RUNNING or not counts[sequence.id]:
                continue
            count, pages = self._secure(sequence, counts[sequence.id], promised, now, events)
            if count:
                copies = stretch(sequence.computed, count, sequence.copies)
                chosen = sequence.needs_logits and count == sequence.pending
                entries.append(PlanEntry(sequence.id, sequence.computed, count, chosen, copies=copies))
                promised += pages
        drafts = {s.id: len(s.draft) for s in self._running if s.draft}
        planned = with_drafts(entries, drafts, promised, self._limits.max_step_tokens, self._pool)
        return StepPlan(planned, tuple(events))

    def commit(self, plan: StepPlan) -> None:
        """Records that the step was computed."""
        ends = {entry.sequence: entry.end for entry in plan.entries}
        for sequence in self._running:
            if sequence.id in ends:
                sequence.steps += 1
                self._advance(sequence, ends[sequence.id])

    def accept(self, sequence: Sequence, tokens: int) -> None:
        """Records that drafted tokens of the step that was committed last were right; they are the sequence's now."""
        self._advance(sequence, sequence.computed + tokens)

    def remove(self, sequences: Iterable[Sequence]) -> None:
        """Takes sequences out, finished or given up, and gives their pages back."""
        for sequence in sequences:
            if sequence.status is Status.RUNNING:
                self._running.remove(sequence)
                self._shares[sequence.level].leave(sequence.client)
            elif sequence.status is Status.WAITING:
                self._waiting.discard(sequence)
                self._shares[sequence.level].leave(sequence.client)
            sequence.status = Status.FINISHED
            self._pool.release(sequence.id)

    def _admit(self, now: float, events: list[SchedulingEvent]) -> None:
        """Lets the waiting in, in order, as long as a slot and the pages for all they have are to be had."""
        room: AdmissionCheck | None = None
        while (head := self._next()) is not None:
            room = self._room(head)
            if room.lack is None:
                self._enter(head, room, now, events)
                continue
            if self._displace_for(head, now, events):
                continue
            urgent = self._waiting.first_above(head.priority) if head.level < head.priority else None
            if urgent is None or not self._displace_for(urgent, now, events):
                break
        self._explain(head, room, now, events)

    def _explain(
        self, head: Sequence | None, room: AdmissionCheck | None, now: float, events: list[SchedulingEvent]
    ) -> None:
        """Says of those who stay waiting why they do, where that is new: the first in line, and those behind it."""
        behind = [s for s in self._fresh if s.wait_reason is None]
        if self._head is not None:
            behind.append(self._head)
        for sequence in behind:
            if sequence is not head and sequence.status is Status.WAITING:
                held = self._batch_held and sequence.priority is Priority.BATCH
                self._defer(sequence, WaitReason.MEMORY if held else WaitReason.ORDER, {}, now, events)
        if head is not None and room is not None and room.lack is not None:
            self._defer(head, room.lack, room.numbers, now, events)
        self._fresh.clear()
        self._head = head

    def _defer(
        self,
        sequence: Sequence,
        why: WaitReason,
        numbers: dict[str, float],
        now: float,
        events: list[SchedulingEvent],
    ) -> None:
        if sequence.wait_reason is not why:
            sequence.wait_reason = why
            numbers = {**self._standing(sequence, now), **numbers, "waiting_requests": len(self._waiting)}
            events.append(SchedulingEvent(AuditEventKind.DEFERRED, sequence.id, why.value, numbers))

    def _enter(self, sequence: Sequence, room: AdmissionCheck, now: float, events: list[SchedulingEvent]) -> None:
        """Gives a sequence a slot and the cached pages of its beginning."""
        numbers = {**self._standing(sequence, now), **room.numbers, "prompt_tokens": sequence.prompt_tokens}
        self._waiting.admit(sequence, now)
        shared = self._pool.match(sequence.trust_domain, sequence.tokens, sequence.keys)
        self._pool.share(sequence.id, shared)
        sequence.computed = len(shared) * self._pool.page_tokens
        sequence.status = Status.RUNNING
        sequence.wait_reason = None
        insort(self._running, sequence, key=_rank)
        copy_plan(sequence, self._pool, room.pages_free - room.pages_needed)
        copied = sum(copy.length for copy in sequence.copies)
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
            self._shares[sequence.level].charge(sequence.client, PROMPT_WEIGHT * max(0, uncached))
            kind, reason = AuditEventKind.ADMITTED, "a slot and pages are free"
        events.append(SchedulingEvent(kind, sequence.id, reason, numbers))

    def _displace_for(self, sequence: Sequence, now: float, events: list[SchedulingEvent]) -> bool:
        """Lets a sequence change places with running ones of a lower class; False if that would not make room."""
        lower = [s for s in self._running if s.level > sequence.priority]
        if not lower or self._room(sequence, lower).lack is not None:
            return False
        room = self._room(sequence)
        while True:
            why = PreemptionReason.SLOT if room.lack is WaitReason.SLOTS else PreemptionReason.PAGES
            self._preempt(self._running[-1], why, sequence, now, events)
            room = self._room(sequence)
            if room.lack is None:
                self._enter(sequence, room, now, events)
                return True

    def _advance(self, sequence: Sequence, computed: int) -> None:
        """Notes that the cache holds a sequence up to a position, and charges what was generated."""
        sequence.computed = computed
        if sequence.copies:
            sequence.copies = tuple(copy for copy in sequence.copies if copy.end > computed)
            if not sequence.copies:
                self._pool.unpin(sequence.id)
        exact = computed if sequence.exact_until is None else min(computed, sequence.exact_until)
        self._pool.register_full(sequence.id, sequence.trust_domain, sequence.tokens, exact, sequence.keys)
        if sequence.computed > sequence.charged_tokens:
            generated = sequence.computed - sequence.charged_tokens
            self._shares[sequence.level].charge(sequence.client, GENERATED_WEIGHT * generated)
            sequence.charged_tokens = sequence.computed

    def _room(self, sequence: Sequence, leaving: Collection[Sequence] = ()) -> AdmissionCheck:
        return can_admit(sequence, self._running, leaving, self._limits.max_slots, self._pool)

    def _secure(
        self, sequence: Sequence, count: int, promised: int, now: float, events: list[SchedulingEvent]
    ) -> tuple[int, int]:
        """Finds the pages for a part of the step, from sequences of a worse rank if need be.

        Args:
            sequence: Whose part.
            count: Tokens it is to compute.
            promised: Pages that better ranks take in this step.
            now: Seconds.
            verdicts: Receives whoever had to give way.

        Returns:
            How many tokens it can compute, and how many new pages they take.
        """
        pool = self._pool
        held = pool.held(sequence.id)
        while pool.pages_for(_end(sequence, count)) - held > pool.available - promised:
            if revoke(self._running[self._running.index(sequence) :], pool):
                continue
            if self._running[-1] is sequence:
                room = (held + pool.available - promised) * pool.page_tokens
                count = min(count, within(sequence.computed, room, sequence.copies))
                break
            self._running[-1].shortages += 1
            self._preempt(self._running[-1], PreemptionReason.SHORTAGE, sequence, now, events)
        return count, pool.pages_for(_end(sequence, count)) - held if count else 0

    def _next(self) -> Sequence | None:
        """Returns who of those that may enter is next."""
        return self._waiting.first_above(Priority.BATCH) if self._batch_held else self._waiting.first()

    def _preempt(
        self,
        sequence: Sequence,
        why: PreemptionReason,
        other: Sequence | None,
        now: float,
        events: list[SchedulingEvent],
    ) -> None:
        """Sends a sequence back to the waiting; what it had computed may survive in the prefix cache."""
        numbers = {
            **self._standing(sequence if other is None else other, now),
            "class_of_preempted": sequence.level,
            "computed_tokens": sequence.computed,
            "pages_held": self._pool.held(sequence.id),
            "pages_available": self._pool.available,
        }
        self._empty(sequence)
        sequence.preemptions += 1
        sequence.status = Status.WAITING
        self._waiting.add(sequence, now)
        favoured = None if other is None else other.id
        events.append(SchedulingEvent(AuditEventKind.PREEMPTED, sequence.id, why.value, numbers, favoured))

    def _empty(self, sequence: Sequence) -> None:
        """Takes a sequence out of those that run, with its slot, its pages and what it drafted."""
        self._running.remove(sequence)
        self._pool.release(sequence.id)
        sequence.computed = 0
        sequence.copies = ()
        sequence.draft = ()

    def _standing(self, sequence: Sequence, now: float) -> dict[str, float]:
        """Returns the numbers that decide a sequence's place, and how many slots there are."""
        waiting_s = now - sequence.waiting_since if sequence.status is Status.WAITING else 0.0
        return {
            "class": sequence.level,
            "waited_s": sequence.waited_s + waiting_s,
            "client_service_tokens": self._shares[sequence.level].service(sequence.client),
            "slots": self._limits.max_slots,
            "slots_busy": len(self._running),
        }


def _end(sequence: Sequence, count: int) -> int:
    """Returns the position after the next so many tokens to compute, what is copied between them included."""
    copies = stretch(sequence.computed, count, sequence.copies)
    return sequence.computed + count + sum(copy.length for copy in copies)


def _rank(sequence: Sequence) -> tuple[int, int]:
    return sequence.rank
