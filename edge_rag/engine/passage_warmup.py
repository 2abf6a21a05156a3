"""Passages computed on their own, each once, before the sequences that copy their keys and values."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from edge_rag.core.query import Priority
from edge_rag.engine.kv_cache.block_pool import BlockPool
from edge_rag.engine.request import ActiveRequest
from edge_rag.engine.scheduling.plan import StepPlan
from edge_rag.engine.scheduling.scheduler import Scheduler
from edge_rag.engine.sequence import Sequence, SequenceId
from edge_rag.errors import RequestTooLarge

_Text = tuple[str, tuple[int, ...]]


class PassageWarmup:
    """Schedules a sequence without an answer for each passage that is not cached, and holds the requests that copy it.

    A method that ends warm-ups returns the requests that wait for none any more. A request whose warm-ups end early
    computes the passages itself. For the engine's thread only.
    """

    def __init__(self, scheduler: Scheduler, pool: BlockPool, new_id: Callable[[], SequenceId]) -> None:
        self._scheduler = scheduler
        self._pool = pool
        self._new_id = new_id
        self.warmups: dict[SequenceId, Sequence] = {}
        self._by_text: dict[_Text, SequenceId] = {}
        self._held: dict[SequenceId, tuple[ActiveRequest, set[SequenceId]]] = {}

    def hold(self, request: ActiveRequest) -> bool:
        """Starts a warm-up for each passage that the request will copy and that is not cached."""
        sequence = request.sequence
        absent = (span.alone for span in sequence.spans if not self._is_cached(sequence, span.alone))
        started = {self._start(sequence, text, request.submitted) for text in absent}
        missing = {warmup for warmup in started if warmup is not None}
        if missing:
            self._held[sequence.id] = (request, missing)
        return bool(missing)

    def end_batch(self) -> list[ActiveRequest]:
        """Ends the warm-ups of the batch class."""
        return self._end([name for name, s in self.warmups.items() if s.priority is Priority.BATCH])

    def end_step(self, plan: StepPlan) -> list[ActiveRequest]:
        """Ends the warm-ups that a committed step completed."""
        in_step = (self.warmups.get(entry.sequence) for entry in plan.entries)
        return self._end([s.id for s in in_step if s is not None and not s.pending])

    def fail_step(self, plan: StepPlan) -> list[ActiveRequest]:
        """Ends the warm-ups in a step that failed."""
        return self._end([entry.sequence for entry in plan.entries if entry.sequence in self.warmups])

    def forget(self, is_ended: Callable[[str], bool]) -> list[ActiveRequest]:
        """Ends the warm-ups in trust domains and epochs that ended."""
        return self._end([s.id for s in self.warmups.values() if is_ended(s.trust_domain)])

    def remove(self, request: ActiveRequest) -> None:
        """Ends the warm-ups that only this request waited for."""
        _, wanted = self._held.pop(request.sequence.id, (request, set[SequenceId]()))
        self._end(wanted - {name for _, names in self._held.values() for name in names})

    def _is_cached(self, sequence: Sequence, text: tuple[int, ...]) -> bool:
        full = (len(text) - 1) // self._pool.page_tokens
        return len(self._pool.match(sequence.trust_domain, text, [])) == full

    def _start(self, sequence: Sequence, text: tuple[int, ...], now: float) -> SequenceId | None:
        """Returns the sequence that computes a text; None if the text is too long to be computed."""
        known = self._by_text.get((sequence.trust_domain, text))
        if known is not None:
            return known
        warmup = Sequence(
            self._new_id(),
            sequence.priority,
            sequence.trust_domain,
            list(text),
            0,
            client=sequence.client,
            arrived=sequence.arrived,
            deadline=sequence.deadline,
        )
        try:
            self._scheduler.submit(warmup, now)
        except RequestTooLarge:
            return None
        self.warmups[warmup.id] = warmup
        self._by_text[sequence.trust_domain, text] = warmup.id
        return warmup.id

    def _end(self, ids: Iterable[SequenceId]) -> list[ActiveRequest]:
        """Takes warm-ups out of the scheduler; returns the requests that wait for none any more."""
        ended = [self.warmups.pop(name) for name in ids]
        if not ended:
            return []
        self._scheduler.remove(ended)
        for sequence in ended:
            del self._by_text[sequence.trust_domain, tuple(sequence.tokens)]
        ready = []
        for request, names in list(self._held.values()):
            names.difference_update(sequence.id for sequence in ended)
            if not names:
                del self._held[request.sequence.id]
                ready.append(request)
        return ready
