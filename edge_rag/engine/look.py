"""A look into a running engine: what is in its slots and who has its pages, taken between two steps."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from edge_rag.core.monitoring.status import PageMap, SlotUse
from edge_rag.engine.kv_cache.block_pool import PagePool
from edge_rag.engine.request import LiveRequest

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


def look_at(running: Iterable[LiveRequest], pool: PagePool, now: float) -> EngineLook:
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


class Lookout:
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
