"""Iteration-level scheduling: who is in the next step, with how many tokens, and who has to give way."""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterable

from edge_rag.errors import NeverFits
from edge_rag.generator.kv.pool import PagePool
from edge_rag.generator.plan import PlanEntry, StepPlan
from edge_rag.generator.policy import SchedulerLimits, allot
from edge_rag.generator.sequence import Sequence, SequenceId, Status


class Scheduler:
    """Decides each step. No clock, no I/O: equal calls give equal plans.

    The running sequence of the best rank advances in every step, because everyone else's pages can be taken for it and
    admission made sure that it fits alone. So somebody always finishes, and nothing waits for ever.

    Args:
        limits: How large a step may be.
        pool: The pages; the scheduler gives pages back and adopts cached ones, reservations take new ones.
        max_context: Most tokens the model can attend to.
    """

    def __init__(self, limits: SchedulerLimits, pool: PagePool, max_context: int) -> None:
        self._limits = limits
        self._pool = pool
        self._capacity = min(max_context, pool.pages * pool.page_tokens)
        self._waiting: list[Sequence] = []
        self._running: list[Sequence] = []

    @property
    def capacity(self) -> int:
        """Most tokens a sequence may come to, prompt and answer together."""
        return self._capacity

    @property
    def running(self) -> tuple[Sequence, ...]:
        """Sequences that hold a slot, best rank first."""
        return tuple(self._running)

    @property
    def waiting(self) -> tuple[Sequence, ...]:
        """Sequences without a slot, best rank first; preempted ones among them."""
        return tuple(self._waiting)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self._waiting and not self._running

    def check(self, prompt_tokens: int, max_tokens: int) -> None:
        """Refuses what could never run, however long it waited.

        Raises:
            NeverFits: Prompt and answer are longer than the model's context or the cache.
        """
        if prompt_tokens + max_tokens > self._capacity:
            raise NeverFits("tokens", prompt_tokens + max_tokens, self._capacity)

    def submit(self, sequence: Sequence) -> None:
        """Takes a sequence in.

        Raises:
            NeverFits: It could never run.
        """
        self.check(sequence.prompt_tokens, sequence.max_tokens)
        sequence.status = Status.WAITING
        insort(self._waiting, sequence, key=_rank)

    def schedule(self) -> StepPlan:
        """Admits, divides the step's tokens, and takes pages away where they run out.

        Returns:
            The next step; without entries only if there is nothing to do.
        """
        preempted: list[SequenceId] = []
        admitted = self._admit(preempted)
        counts = dict(
            zip((s.id for s in self._running), allot([s.pending for s in self._running], self._limits), strict=True)
        )
        entries: list[PlanEntry] = []
        promised = 0
        for sequence in tuple(self._running):
            if sequence.status is not Status.RUNNING or not counts[sequence.id]:
                continue
            count, pages = self._secure(sequence, counts[sequence.id], promised, preempted)
            if count:
                entries.append(PlanEntry(sequence.id, sequence.computed, count, count == sequence.pending))
                promised += pages
        return StepPlan(tuple(entries), tuple(admitted), tuple(preempted))

    def commit(self, plan: StepPlan) -> None:
        """Records that the step was computed."""
        counts = {entry.sequence: entry.count for entry in plan.entries}
        for sequence in self._running:
            if sequence.id in counts:
                sequence.computed += counts[sequence.id]
                sequence.steps += 1
                self._pool.seal(sequence.id, sequence.trust_domain, sequence.tokens, sequence.computed)

    def remove(self, sequences: Iterable[Sequence]) -> None:
        """Takes sequences out, finished or given up, and gives their pages back."""
        for sequence in sequences:
            if sequence.status is Status.RUNNING:
                self._running.remove(sequence)
            elif sequence.status is Status.WAITING:
                self._waiting.remove(sequence)
            sequence.status = Status.FINISHED
            self._pool.release(sequence.id)

    def _admit(self, preempted: list[SequenceId]) -> list[SequenceId]:
        """Lets the waiting in, best rank first, as long as a slot and the pages for all they have are to be had.

        Nobody overtakes the first in line, who may displace sequences of a lower class but not of its own.
        """
        admitted: list[SequenceId] = []
        while self._waiting:
            sequence = self._waiting[0]
            if not self._has_room(sequence):
                lower = [s for s in self._running if s.priority > sequence.priority]
                if not self._has_room(sequence, lower):
                    break
                while not self._has_room(sequence):
                    self._preempt(self._running[-1], preempted)
            del self._waiting[0]
            shared = self._pool.match(sequence.trust_domain, sequence.tokens)
            self._pool.adopt(sequence.id, shared)
            sequence.computed = len(shared) * self._pool.page_tokens
            if not sequence.preemptions:
                sequence.cached_tokens = sequence.computed
            sequence.status = Status.RUNNING
            insort(self._running, sequence, key=_rank)
            admitted.append(sequence.id)
        return admitted

    def _has_room(self, sequence: Sequence, leaving: Collection[Sequence] = ()) -> bool:
        """Whether a sequence could enter if these left.

        It needs a slot and its pages, beside what the others have yet to fill and a page of growth for each of them, so
        that the next step does not put it out again.
        """
        if len(self._running) - len(leaving) >= self._limits.max_slots:
            return False
        pool = self._pool
        staying = [s for s in self._running if s not in leaving]
        shared = pool.match(sequence.trust_domain, sequence.tokens)
        available = pool.available_without([s.id for s in leaving], shared)
        owed = sum(pool.pages_for(len(s.tokens)) - pool.held(s.id) for s in staying)
        return pool.pages_for(len(sequence.tokens)) - len(shared) <= available - owed - len(staying)

    def _secure(self, sequence: Sequence, count: int, promised: int, preempted: list[SequenceId]) -> tuple[int, int]:
        """Finds the pages for a part of the step, from sequences of a worse rank if need be.

        Args:
            sequence: Whose part.
            count: Tokens it is to compute.
            promised: Pages that better ranks take in this step.
            preempted: Receives whoever had to give way.

        Returns:
            How many tokens it can compute, and how many new pages they take.
        """
        pool = self._pool
        held = pool.held(sequence.id)
        while pool.pages_for(sequence.computed + count) - held > pool.available - promised:
            if self._running[-1] is sequence:
                room = (held + pool.available - promised) * pool.page_tokens - sequence.computed
                count = max(0, min(count, room))
                break
            self._preempt(self._running[-1], preempted)
        return count, pool.pages_for(sequence.computed + count) - held if count else 0

    def _preempt(self, sequence: Sequence, preempted: list[SequenceId]) -> None:
        """Sends a sequence back to the waiting; what it had computed may survive in the prefix cache."""
        self._running.remove(sequence)
        self._pool.release(sequence.id)
        sequence.computed = 0
        sequence.preemptions += 1
        sequence.status = Status.WAITING
        insort(self._waiting, sequence, key=_rank)
        preempted.append(sequence.id)


def _rank(sequence: Sequence) -> tuple[int, int]:
    return sequence.rank
