"""Embeds the passages of one document on all encoders that have time.

Remotes take batches from the back of the document, with two batches in flight each. The local embedder, if it takes
part, takes a few passages at a time from the front, and at the end repeats what remotes have not returned yet. One
random passage of every returned batch is embedded locally as well, since stored vectors are used for years.

FREE ── taken by an encoder ──> TAKEN ── returned ──> FILLED
  ^                              │                      │
  ├────────── failure ───────────┘                      │
  └────────── a remote's vectors were rejected ─────────┘

When no work is unclaimed any more, the local embedder may repeat the work of remotes, and the first result is used, so
that a slow remote does not delay the end of a document; as MapReduce's backup tasks (Dean and Ghemawat, 2004).
"""

from __future__ import annotations

import asyncio
import math
import random
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.placement import OffloadRule
from edge_rag.errors import EdgeRagError
from edge_rag.offload.encoding.client import EncoderOffload, EncoderState
from edge_rag.offload.encoding.messages import MAX_CHARACTERS, MAX_TEXT_CHARACTERS, is_unicode, same_vector
from edge_rag.offload.encoding.routing import batch_texts, late_after_s
from edge_rag.offload.routing import Place, RoutingDecision

LOCAL: Final = ""
"""Name of the local embedder among those that fill."""

_FREE, _TAKEN, _FILLED = 0, 1, 2

Vectors = NDArray[np.float32]

_MAX_BATCH_BYTES: Final = 3 << 20
"""Most bytes of vectors in one reply."""

_RETRY_S: Final = 0.5
"""Interval of checks whether a remote that failed is available again, seconds."""

_IN_FLIGHT: Final = 2
"""Batches that a remote has at once: one in computation, one in transit."""


class TextPool:
    """Tracks which texts of a document are free, taken and filled, by position. Not synchronized.

    Args:
        max_characters: Longest text that a remote may take, characters.
    """

    def __init__(self, lengths: Sequence[int], max_characters: int) -> None:
        self._lengths = lengths
        self._max_characters = max_characters
        self._state = bytearray(len(lengths))
        self._filled_by: dict[int, str] = {}
        self._front, self._back = 0, len(lengths)

    @property
    def filled(self) -> int:
        return len(self._filled_by)

    @property
    def is_complete(self) -> bool:
        return self.filled == len(self._lengths)

    def take_front(self, most: int) -> range:
        while self._front < len(self._state) and self._state[self._front] != _FREE:
            self._front += 1
        stop = self._front
        while stop < len(self._state) and stop - self._front < most and self._state[stop] == _FREE:
            stop += 1
        return self._take(range(self._front, stop))

    def take_back(self, most: int, max_characters: int) -> range:
        """Takes free texts from the back for a remote; an empty range if there are none.

        Args:
            max_characters: Most characters in total, at least the longest text that a remote may take.
        """
        while self._back > 0 and not self._may_leave(self._back - 1):
            self._back -= 1
        first, characters = self._back, 0
        while first > 0 and self._back - first < most and self._may_leave(first - 1):
            characters += self._lengths[first - 1]
            if characters > max_characters:
                break
            first -= 1
        return self._take(range(first, self._back))

    def backup(self, part: range, most: int) -> range:
        """Returns up to ``most`` texts of a taken part that are not filled, for a second computation."""
        first = next((position for position in part if self._state[position] == _TAKEN), part.stop)
        stop = first
        while stop < part.stop and stop - first < most and self._state[stop] == _TAKEN:
            stop += 1
        return range(first, stop)

    def release(self, part: range) -> None:
        """Frees the texts of a part that are not filled."""
        for position in part:
            if self._state[position] == _TAKEN:
                self._state[position] = _FREE
        self._extend(part)

    def fill(self, part: range, by: str) -> list[int]:
        """Marks texts as filled; returns the positions that were not filled before."""
        new = [position for position in part if self._state[position] != _FILLED]
        for position in new:
            self._state[position] = _FILLED
            self._filled_by[position] = by
        return new

    def revert(self, by: str) -> int:
        reverted = [position for position, name in self._filled_by.items() if name == by]
        for position in reverted:
            self._state[position] = _FREE
            del self._filled_by[position]
            self._extend(range(position, position + 1))
        return len(reverted)

    def _may_leave(self, position: int) -> bool:
        return self._state[position] == _FREE and self._lengths[position] <= self._max_characters

    def _take(self, part: range) -> range:
        for position in part:
            self._state[position] = _TAKEN
        return part

    def _extend(self, part: range) -> None:
        self._front, self._back = min(self._front, part.start), max(self._back, part.stop)


@dataclass(frozen=True, slots=True)
class LocalEmbedder:
    """The local embedder.

    Attributes:
        yield_to_queries: Called after each batch with its time in seconds; returns when the next one may start.
    """

    embed: Callable[[Sequence[str]], Vectors]
    yield_to_queries: Callable[[float], None]
    batch_size: int


@dataclass(frozen=True, slots=True)
class _Sent:
    state: EncoderState
    expected_at: float
    late_at: float


@dataclass(frozen=True, slots=True, eq=False)
class _Reply:
    state: EncoderState
    part: range
    vectors: Vectors


class BulkEmbedding:
    """Embeds one document. Runs on the ingest thread; remotes are called on the event loop.

    Args:
        rule: Returns the collection's present offload rule; read before every batch that is sent.
    """

    def __init__(
        self,
        offload: EncoderOffload,
        decision: RoutingDecision,
        texts: Sequence[str],
        rule: Callable[[], OffloadRule],
        local: LocalEmbedder,
        on_progress: Callable[[int], None],
    ) -> None:
        self._offload = offload
        self._texts = texts
        self._rule = rule
        self._local = local
        self._on_progress = on_progress
        self._local_takes_part = decision.place is Place.BOTH
        self._states = [offload.states[name] for name in decision.remotes]
        lengths = [len(text) if is_unicode(text) else MAX_TEXT_CHARACTERS + 1 for text in texts]
        self._pool = TextPool(lengths, MAX_TEXT_CHARACTERS)
        self._vectors = np.empty((len(texts), offload.models.dimension), dtype=np.float32)
        self._changed = threading.Condition()
        self._replies: deque[_Reply] = deque()
        self._rejected: set[str] = set()
        self._active_workers = 0
        self._sent: dict[range, _Sent] = {}
        self._done = False

    def run(self) -> Vectors:
        """Returns the vectors, float32 [texts, dimension]."""
        self._on_progress(0)
        workers = [self._start_worker(state) for state in self._states for _ in range(_IN_FLIGHT)]
        try:
            while not self._process_replies():
                part = self._next_local_part()
                if part:
                    self._embed_locally(part)
            return self._vectors
        finally:
            with self._changed:
                self._done = True
                now = self._offload.clock()
                late = {sent.state.name: sent.state for sent in self._sent.values() if now >= sent.late_at}
            for worker in workers:
                worker.cancel()
            for state in late.values():
                problem = "the local embedder finished the batch first"
                failed = partial(self._offload.remotes.record_failure, state.shared, problem, busy=False)
                self._offload.loop.post(failed)

    def _process_replies(self) -> bool:
        while True:
            with self._changed:
                if not self._replies:
                    return self._pool.is_complete
                reply = self._replies.popleft()
            self._process(reply)

    def _process(self, reply: _Reply) -> None:
        """Accepts a batch if the vector of a random text of it equals the one computed locally."""
        sample = random.choice(reply.part)
        local = self._local.embed([self._texts[sample]])[0]
        name = reply.state.name
        with self._changed:
            if name in self._rejected:
                self._pool.release(reply.part)
            elif same_vector(local, reply.vectors[sample - reply.part.start]):
                new = np.array(self._pool.fill(reply.part, name), dtype=np.intp)
                self._vectors[new] = reply.vectors[new - reply.part.start]
            else:
                self._rejected.add(name)
                self._pool.release(reply.part)
                self._pool.revert(name)
                self._offload.loop.post(lambda: self._offload.reject(reply.state))
            filled = self._pool.filled
        self._on_progress(filled)

    def _next_local_part(self) -> range:
        """Waits for a reply or for texts to embed locally; returns those, or an empty range."""
        with self._changed:
            while not self._replies:
                alone = not self._active_workers
                if self._local_takes_part or alone:
                    part = self._pool.take_front(self._local.batch_size)
                    if part or alone:
                        return part
                now = self._offload.clock()
                if part := self._backup_part(now):
                    return part
                late_at = min((sent.late_at for sent in self._sent.values() if sent.late_at > now), default=math.inf)
                self._changed.wait(None if late_at == math.inf else late_at - now)
            return range(0)

    def _backup_part(self, now: float) -> range:
        """Returns texts in flight that the local embedder should do as well.

        Those of a late batch; and if the local embedder takes part, those that it would finish sooner.
        """
        for part, sent in self._sent.items():
            backup = self._pool.backup(part, self._local.batch_size)
            local_at = now + self._offload.expected_local_s(len(backup))
            sooner = self._local_takes_part and local_at < sent.expected_at
            if backup and (sooner or now >= sent.late_at):
                return backup
        return range(0)

    def _embed_locally(self, part: range) -> None:
        started = self._offload.clock()
        vectors = self._local.embed([self._texts[position] for position in part])
        elapsed = self._offload.clock() - started
        self._offload.measure_local(len(part), elapsed)
        with self._changed:
            new = np.array(self._pool.fill(part, LOCAL), dtype=np.intp)
            self._vectors[new] = vectors[new - part.start]
            filled = self._pool.filled
        self._on_progress(filled)
        self._local.yield_to_queries(elapsed)

    def _start_worker(self, state: EncoderState) -> Future[None]:
        with self._changed:
            self._active_workers += 1
        worker = self._offload.loop.submit(self._work(state))
        worker.add_done_callback(lambda _: self._worker_inactive())
        return worker

    def _worker_inactive(self) -> None:
        with self._changed:
            self._active_workers -= 1
            self._changed.notify_all()

    async def _work(self, state: EncoderState) -> None:
        """Sends batches to a remote until nothing is free; on the event loop.

        After a failure the local embedder takes part as well, and the remote is tried again as its circuit breaker
        allows.
        """
        while not self._is_over(state):
            if not self._offload.available(state):
                await self._back_off()
            elif not (part := self._next_batch(state)):
                return
            elif not await self._send(state, part):
                await self._back_off()

    async def _send(self, state: EncoderState, part: range) -> bool:
        """Sends a batch; returns whether it succeeded."""
        offload = self._offload
        now, expected = offload.clock(), state.latency.expected_s(len(part))
        expected_at = math.inf if expected is None else now + expected
        late_at = now + late_after_s(len(part), offload.timeout_s, state.latency)
        with self._changed:
            self._sent[part] = _Sent(state, expected_at, late_at)
            self._changed.notify_all()
        texts = [self._texts[position] for position in part]
        reply: _Reply | None = None
        try:
            reply = _Reply(state, part, await offload.embed(state, texts, self._rule))
        except EdgeRagError as error:
            offload.events.taken_over(state.name, str(error), len(part), offload.clock())
            with self._changed:
                self._local_takes_part = True
            return False
        finally:
            self._finish_batch(part, reply)
        return True

    async def _back_off(self) -> None:
        """Waits; meanwhile the worker does not count as active."""
        self._worker_inactive()
        try:
            await asyncio.sleep(_RETRY_S)
        finally:
            with self._changed:
                self._active_workers += 1

    def _is_over(self, state: EncoderState) -> bool:
        with self._changed:
            return self._done or state.name in self._rejected or self._rule() is not OffloadRule.ALLOWED

    def _next_batch(self, state: EncoderState) -> range:
        most = batch_texts(state.latency, self._offload.timeout_s)
        most = min(most, _MAX_BATCH_BYTES // (4 * self._offload.models.dimension))
        with self._changed:
            return self._pool.take_back(most, MAX_CHARACTERS)

    def _finish_batch(self, part: range, reply: _Reply | None) -> None:
        with self._changed:
            self._sent.pop(part, None)
            if reply is None:
                self._pool.release(part)
            else:
                self._replies.append(reply)
            self._changed.notify_all()
