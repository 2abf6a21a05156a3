"""What the engine counts, and its state as a value.

A look into a running engine: what is in its slots and who has its pages, taken between two steps.

How fast requests leave, for telling a refused one when to come back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from edge_rag.core.monitoring.status import PageMap, SlotUse
from edge_rag.engine.kv_cache.block_pool import BlockPool
from edge_rag.engine.kv_cache.disk.tier import DiskCounts
from edge_rag.engine.request import ActiveRequest


@dataclass(frozen=True, slots=True)
class EngineSnapshot:
    """The engine at a step boundary; counts are since it was made.

    Attributes:
        slots: Slots there are.
        running: Slots taken.
        waiting: Requests that have had no slot yet.
        capacity: Most requests that may wait.
        pages: Pages there are.
        pages_held: Pages that sequences hold.
        pages_cached: Pages nobody holds whose content can still be used.
        steps: Model runs.
        prefill_tokens: Tokens computed in parts of more than one.
        decode_tokens: Tokens computed one at a time.
        generated_tokens: Tokens said, forced ones included.
        preemptions: Times a sequence gave way.
        completed: Requests that ended well.
        failed: Requests that ended badly, cancelled ones included.
        refused: Requests turned away because too many waited.
        disk: What became of pages on disk; None where none are kept.
    """

    slots: int
    running: int
    waiting: int
    capacity: int
    pages: int
    pages_held: int
    pages_cached: int
    steps: int
    prefill_tokens: int
    decode_tokens: int
    generated_tokens: int
    preemptions: int
    completed: int
    failed: int
    refused: int
    disk: DiskCounts | None = None

    def counted_on(self, earlier: EngineSnapshot) -> EngineSnapshot:
        """Returns this state with the counts of another engine that came before added."""
        return replace(
            self,
            steps=self.steps + earlier.steps,
            prefill_tokens=self.prefill_tokens + earlier.prefill_tokens,
            decode_tokens=self.decode_tokens + earlier.decode_tokens,
            generated_tokens=self.generated_tokens + earlier.generated_tokens,
            preemptions=self.preemptions + earlier.preemptions,
            completed=self.completed + earlier.completed,
            failed=self.failed + earlier.failed,
            refused=self.refused + earlier.refused,
        )


@dataclass(slots=True)
class Counts:
    """Counts since the engine was made; the engine's thread writes, any may read."""

    steps: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    generated_tokens: int = 0
    preemptions: int = 0
    completed: int = 0
    failed: int = 0


MAP_CELLS: Final = 512
"""Most cells of a map of the pages."""

PATIENCE_S: Final = 1.0
"""How long somebody who looks waits for the step under way, seconds."""


@dataclass(frozen=True, slots=True)
class EngineLook:
    """What an engine was doing between two steps.

    Attributes:
        sequences: What ran, best rank first.
        page_map: Who had the pages.
    """

    sequences: tuple[SlotUse, ...]
    page_map: PageMap


def look_at(running: Iterable[ActiveRequest], pool: BlockPool, now: float) -> EngineLook:
    """Takes a look.

    Args:
        running: Requests with a slot, best rank first.
        pool: The pages.
        now: Seconds on the engine's clock.
    """
    slots = []
    for live in running:
        sequence = live.sequence
        slots.append(
            SlotUse(
                request_id=live.request.request_id,
                client=live.request.client,
                priority=live.request.priority,
                age_s=now - live.submitted,
                prompt_tokens=sequence.prompt_tokens,
                cached_tokens=sequence.cached_tokens,
                computed_tokens=sequence.computed,
                generated_tokens=sequence.generated,
                max_tokens=sequence.max_tokens,
                pages=pool.held(sequence.id),
                preemptions=sequence.preemptions,
            )
        )
    return EngineLook(tuple(slots), pool.map(MAP_CELLS))


class SnapshotExchange:
    """Lets others look into an engine without touching what only its thread may: it takes the look when asked.

    Args:
        first: What is seen before the engine has taken one.
    """

    def __init__(self, first: EngineLook) -> None:
        self._latest = first
        self._taken = 0
        self._wanted = False
        self._shown = threading.Condition()

    def ask(self, wake: Callable[[], None]) -> EngineLook:
        """Returns a look taken after the call; where a step takes long, the latest there is.

        Args:
            wake: Has the engine go round if it sits still.
        """
        with self._shown:
            before = self._taken
            self._wanted = True
        wake()
        with self._shown:
            self._shown.wait_for(lambda: self._taken > before, PATIENCE_S)
            return self._latest

    def show(self, take: Callable[[], EngineLook]) -> None:
        """Takes a look if anybody asked; for the engine's thread, between two steps."""
        if self._wanted:
            look = take()
            with self._shown:
                self._latest = look
                self._taken += 1
                self._wanted = False
                self._shown.notify_all()


class DrainRate:
    """Exponentially weighted means of the time between two requests leaving while others waited, and of their size.

    Args:
        weight: Weight of the latest, in (0, 1].
        assumed_s: Interval assumed until one was measured, seconds.
    """

    def __init__(self, weight: float = 0.2, assumed_s: float = 1.0) -> None:
        self._weight = weight
        self._interval = assumed_s
        self._tokens: float | None = None
        self._last: float | None = None

    def left(self, now: float, others_wait: bool, tokens: int) -> None:
        """A request left.

        Args:
            now: When, seconds.
            others_wait: Whether the next interval measures work, not a lack of it.
            tokens: What it could come to, prompt and answer together.
        """
        if self._last is not None:
            self._interval += self._weight * (now - self._last - self._interval)
        self._tokens = tokens if self._tokens is None else self._tokens + self._weight * (tokens - self._tokens)
        self._last = now if others_wait else None

    def retry_after_s(self, tokens_short: int = 0) -> float:
        """Returns when there is likely to be room, in seconds, 0.05 to 60.

        Args:
            tokens_short: Tokens that have to leave first; at least one request has to in any case.
        """
        requests = max(1.0, tokens_short / self._tokens) if self._tokens else 1.0
        return min(max(self._interval * requests, 0.05), 60.0)
