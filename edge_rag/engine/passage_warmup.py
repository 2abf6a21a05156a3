"""Passages computed alone, each once, before the sequences that copy them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from edge_rag.engine.kv_cache.block_pool import BlockPool
from edge_rag.engine.scheduling.plan import StepPlan
from edge_rag.engine.scheduling.scheduler import Scheduler
from edge_rag.engine.sequence import Sequence, SequenceId
from edge_rag.errors import RequestTooLarge

_Text = tuple[str, tuple[int, ...]]


class PassageWarmup:
    """Sequences of passages alone, which say nothing, and the ones that wait for them. For the engine's thread.

    Args:
        scheduler: Runs them, in the class and on the account of who waits.
        pool: Knows what is there already.
        new_id: Returns the next sequence's id.
    """

    def __init__(self, scheduler: Scheduler, pool: BlockPool, new_id: Callable[[], SequenceId]) -> None:
        self._scheduler = scheduler
        self._pool = pool
        self._new_id = new_id
        self._warming: dict[SequenceId, Sequence] = {}
        self._texts: dict[_Text, SequenceId] = {}
        self._waiting: dict[SequenceId, set[SequenceId]] = {}

    @property
    def sequences(self) -> Mapping[SequenceId, Sequence]:
        """Those that are not done."""
        return self._warming

    @property
    def domains(self) -> frozenset[str]:
        """Their trust domains."""
        return frozenset(sequence.trust_domain for sequence in self._warming.values())

    def hold(self, sequence: Sequence, now: float) -> bool:
        """Has what a new sequence is to copy computed, as far as it is not in the cache.

        Args:
            sequence: It has not been submitted.
            now: Seconds.

        Returns:
            Whether it has to wait for that.
        """
        absent = (span.alone for span in sequence.spans if not self._is_there(sequence, span.alone))
        begun = {self._begin(sequence, text, now) for text in absent}
        missing = {name for name in begun if name is not None}
        if missing:
            self._waiting[sequence.id] = missing
        return bool(missing)

    def done(self, plan: StepPlan) -> list[SequenceId]:
        """Ends those that a step completed; returns who has to wait no more."""
        named = (self._warming.get(entry.sequence) for entry in plan.entries)
        return self._end(s.id for s in named if s is not None and not s.pending)

    def give_up(self, ids: Iterable[SequenceId]) -> list[SequenceId]:
        """Ends some before they are complete; returns who has to wait no more, and computes them itself."""
        return self._end(tuple(i for i in ids if i in self._warming))

    def forget(self, trust_domain: str) -> list[SequenceId]:
        """Ends those of a trust domain; returns who has to wait no more, and computes them itself."""
        return self._end([s.id for s in self._warming.values() if s.trust_domain == trust_domain])

    def left(self, waiting: SequenceId) -> None:
        """Somebody is over; what only they waited for is computed no further. Nothing happens if they did not wait."""
        wanted = self._waiting.pop(waiting, set())
        self._end(wanted - {name for names in self._waiting.values() for name in names})

    def _is_there(self, sequence: Sequence, text: tuple[int, ...]) -> bool:
        full = (len(text) - 1) // self._pool.page_tokens
        return len(self._pool.match(sequence.trust_domain, text, [])) == full

    def _begin(self, sequence: Sequence, text: tuple[int, ...], now: float) -> SequenceId | None:
        """Returns the sequence that computes a text; None if it is too long to be computed."""
        known = self._texts.get((sequence.trust_domain, text))
        if known is not None:
            return known
        alone = Sequence(
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
            self._scheduler.submit(alone, now)
        except RequestTooLarge:
            return None
        self._warming[alone.id] = alone
        self._texts[sequence.trust_domain, text] = alone.id
        return alone.id

    def _end(self, ids: Iterable[SequenceId]) -> list[SequenceId]:
        ended = [self._warming.pop(name) for name in ids]
        self._scheduler.remove(ended)
        for sequence in ended:
            del self._texts[sequence.trust_domain, tuple(sequence.tokens)]
        ready = []
        for waiting, names in list(self._waiting.items()):
            names.difference_update(sequence.id for sequence in ended)
            if not names:
                del self._waiting[waiting]
                ready.append(waiting)
        return ready
