"""Prompts that are likely to come, computed while the engine has nothing else to do.

Retrieval knows the passages before the reranker has put them in order. What the engine computes of the likely prompt
meanwhile lies in the prefix cache when the request comes; if the order was another one, as much of it as begins alike.

    expected     any thread; a bounded number, the oldest one goes
    next         the engine's thread, only when nothing runs and nothing waits
    let go       as soon as something does; what is computed stays, as pages that nobody holds
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from edge_rag.engine.kv_cache.block_pool import BlockPool
from edge_rag.engine.request import TokenRequest
from edge_rag.engine.scheduling.plan import PlanEntry, StepPlan
from edge_rag.engine.sequence import Sequence

MOST_EXPECTED: Final = 4
CHUNK_TOKENS: Final = 64
"""Tokens of a step ahead: the longest that a request can come to wait for one."""

GOOD_FOR_S: Final = 5.0
"""Time after which a prompt that did not come is no longer expected, seconds."""


@dataclass(slots=True, eq=False)
class PrefetchRequest:
    """A prompt that is likely to come.

    Attributes:
        request: As it would be.
        sequence: Its tokens.
        at: When it was said, seconds.
        begun: Whether its beginning was looked up in the cache.
        computed_ahead: Tokens computed.
    """

    request: TokenRequest
    sequence: Sequence
    at: float
    begun: bool = False
    computed_ahead: int = 0


class Prefetcher:
    """What is expected, and how far it is.

    Args:
        pool: The pages.
        compute: Whether anything is computed; if not, pages are only looked for on disk.
    """

    def __init__(self, pool: BlockPool, compute: bool) -> None:
        self._pool = pool
        self._compute = compute
        self._fresh: deque[PrefetchRequest] = deque(maxlen=MOST_EXPECTED)
        self._coming: deque[PrefetchRequest] = deque(maxlen=MOST_EXPECTED)
        self._changing = threading.Lock()
        self._current: PrefetchRequest | None = None
        self._ended: list[PrefetchRequest] = []

    @property
    def computes(self) -> bool:
        """Whether anything is computed; any thread."""
        return self._compute

    def __bool__(self) -> bool:
        """Whether there may be something to compute."""
        return self._current is not None or bool(self._coming)

    def expect(self, expected: PrefetchRequest) -> None:
        """Notes that a prompt is likely to come; any thread."""
        with self._changing:
            self._fresh.append(expected)
            if self._compute:
                self._coming.append(expected)

    def take_fresh(self) -> list[PrefetchRequest]:
        """Returns what was said since the last call; the engine's thread."""
        if not self._fresh:
            return []
        with self._changing:
            fresh = list(self._fresh)
            self._fresh.clear()
        return fresh

    def came(self, request: TokenRequest) -> None:
        """A request came: nothing is computed ahead of it any more; the engine's thread."""
        with self._changing:
            others = [each for each in self._coming if each.request.request_id != request.request_id]
            self._coming = deque(others, maxlen=MOST_EXPECTED)
        if self._current is not None and self._current.request.request_id == request.request_id:
            self.drop()

    def take_ended(self) -> list[PrefetchRequest]:
        """Returns what something was computed of and nothing more will be, each once."""
        ended, self._ended = self._ended, []
        return ended

    def let_go(self) -> None:
        """Gives back the pages of what is being computed, to go on later."""
        if self._current is not None and self._current.begun:
            self._pool.release(self._current.sequence.id)
            self._current.begun = False

    def next(self, now: float, is_over: Callable[[TokenRequest], bool]) -> StepPlan | None:
        """Returns the next step ahead, or None if there is none.

        Args:
            now: Seconds.
            is_over: Whether a request may hold text that was removed.
        """
        while (expected := self._take()) is not None:
            sequence, pool = expected.sequence, self._pool
            if now - expected.at > GOOD_FOR_S or is_over(expected.request):
                self.drop()
                continue
            if not expected.begun:
                found = pool.match(sequence.trust_domain, sequence.tokens, sequence.keys)
                pool.share(sequence.id, found)
                sequence.computed, expected.begun = len(found) * pool.page_tokens, True
            end = (len(sequence.tokens) - 1) // pool.page_tokens * pool.page_tokens
            count = min(max(1, CHUNK_TOKENS // pool.page_tokens) * pool.page_tokens, end - sequence.computed)
            if count <= 0 or pool.pages_for(count) > pool.available:
                self.drop()
                continue
            return StepPlan((PlanEntry(sequence.id, sequence.computed, count, wants_logits=False),))
        return None

    def commit(self, plan: StepPlan) -> None:
        """Notes that a step was computed."""
        if self._current is not None:
            sequence = self._current.sequence
            sequence.computed += plan.tokens
            self._current.computed_ahead += plan.tokens
            self._pool.register_full(
                sequence.id, sequence.trust_domain, sequence.tokens, sequence.computed, sequence.keys, asked=False
            )

    @property
    def sequence(self) -> Sequence | None:
        """What is being computed."""
        return None if self._current is None else self._current.sequence

    def clear(self) -> None:
        """Gives everything up that is expected; the engine's thread."""
        with self._changing:
            self._coming.clear()
        self.drop()

    def drop(self) -> None:
        """Gives what is being computed up."""
        self.let_go()
        if self._current is not None and self._current.computed_ahead:
            self._ended.append(self._current)
        self._current = None

    def _take(self) -> PrefetchRequest | None:
        if self._current is None:
            with self._changing:
                self._current = self._coming.popleft() if self._coming else None
        return self._current
