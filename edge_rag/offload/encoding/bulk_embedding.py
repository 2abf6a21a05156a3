"""The passages of one document, embedded by whoever has time.

Machines take batches from the back and always have the next one on its way; this box, where it takes part, takes a few
passages at a time from the front, and in the end does what others have not brought back yet, as the pool has it.
Of every batch that comes back, one passage is embedded here too: what is stored is found by for years.

Which text of a document is whose: this box takes from the front, others from the back, until all are done. Pure.

FREE ── taken, here or elsewhere ──> TAKEN ── came back ──> FILLED
  ^                                   │                       │
  ├────────── failed there ───────────┘                       │
  └────────── who filled it turned out to lie ────────────────┘

Where nothing is free any more, this box may do what others have taken as well, and whoever is first fills it: so the
end of a document does not wait for a machine that is slow, as with MapReduce's backup tasks (Dean and Ghemawat, 2004).
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
from edge_rag.core.query import NO_CONTEXT
from edge_rag.errors import EdgeRagError
from edge_rag.offload.encoding.client import (
    EncoderCall,
    EncodeRequest,
    EncoderOffload,
    EncoderResult,
    EncoderState,
    EncodingRemote,
)
from edge_rag.offload.encoding.messages import (
    LONGEST_TEXT,
    MOST_CHARACTERS,
    agree,
    checked_vectors,
    is_unicode,
    release_texts,
)
from edge_rag.offload.encoding.routing import Work, batch_texts
from edge_rag.offload.generation.routing import Choice, Place

HERE: Final = ""
"""Stands for this box where those who fill are named."""

_FREE, _TAKEN, _FILLED = 0, 1, 2


class Pool:
    """Keeps count of texts by their position. Callers take care that one at a time uses it.

    Args:
        lengths: Characters of each text.
        longest: Longest text that may be taken elsewhere, characters.
    """

    def __init__(self, lengths: Sequence[int], longest: int) -> None:
        self._lengths = lengths
        self._longest = longest
        self._state = bytearray(len(lengths))
        self._filled_by: dict[int, str] = {}
        self._front, self._back = 0, len(lengths)

    @property
    def filled(self) -> int:
        """Number of texts that are done."""
        return len(self._filled_by)

    @property
    def is_full(self) -> bool:
        """Whether all of them are."""
        return self.filled == len(self._lengths)

    def take_here(self, most: int) -> range:
        """Takes up to so many free texts from the front; an empty range where none is free."""
        while self._front < len(self._state) and self._state[self._front] != _FREE:
            self._front += 1
        stop = self._front
        while stop < len(self._state) and stop - self._front < most and self._state[stop] == _FREE:
            stop += 1
        return self._taken(range(self._front, stop))

    def take_away(self, most: int, most_characters: int) -> range:
        """Takes free texts from the back, to be done elsewhere; an empty range where there are none.

        Args:
            most: Most texts.
            most_characters: Most characters of all of them, at least ``longest``.
        """
        while self._back > 0 and not self._may_leave(self._back - 1):
            self._back -= 1
        first, characters = self._back, 0
        while first > 0 and self._back - first < most and self._may_leave(first - 1):
            characters += self._lengths[first - 1]
            if characters > most_characters:
                break
            first -= 1
        return self._taken(range(first, self._back))

    def doubled(self, part: range, most: int) -> range:
        """Returns up to so many texts that somebody has and this box may do as well; takes none.

        Args:
            part: What somebody has.
            most: Most texts.
        """
        first = next((position for position in part if self._state[position] == _TAKEN), part.stop)
        stop = first
        while stop < part.stop and stop - first < most and self._state[stop] == _TAKEN:
            stop += 1
        return range(first, stop)

    def give_back(self, part: range) -> None:
        """Frees what was taken and is not done."""
        for position in part:
            if self._state[position] == _TAKEN:
                self._state[position] = _FREE
        self._freed(part)

    def fill(self, part: range, by: str) -> list[int]:
        """Notes that texts are done; returns those that were not done before."""
        fresh = [position for position in part if self._state[position] != _FILLED]
        for position in fresh:
            self._state[position] = _FILLED
            self._filled_by[position] = by
        return fresh

    def undo(self, by: str) -> int:
        """Frees all that somebody did; returns how many texts that is."""
        undone = [position for position, who in self._filled_by.items() if who == by]
        for position in undone:
            self._state[position] = _FREE
            del self._filled_by[position]
            self._freed(range(position, position + 1))
        return len(undone)

    def _may_leave(self, position: int) -> bool:
        return self._state[position] == _FREE and self._lengths[position] <= self._longest

    def _taken(self, part: range) -> range:
        for position in part:
            self._state[position] = _TAKEN
        return part

    def _freed(self, part: range) -> None:
        self._front, self._back = min(self._front, part.start), max(self._back, part.stop)


Vectors = NDArray[np.float32]

_MOST_BYTES: Final = 3 << 20
"""Most bytes of vectors that are asked for at once."""

_REST_S: Final = 0.5
"""Time between two looks at whether a machine that failed is asked again, seconds."""

_IN_FLIGHT: Final = 2
"""Batches that a machine has at once: one that it works on, and one on its way."""


@dataclass(frozen=True, slots=True)
class HereToo:
    """What this box does itself.

    Attributes:
        embed: Embeds a few passages.
        yield_to_queries: Called after each time with the seconds it took; returns when the next may begin.
        at_once: How many passages that is at most.
    """

    embed: Callable[[Sequence[str]], Vectors]
    yield_to_queries: Callable[[float], None]
    at_once: int


@dataclass(frozen=True, slots=True)
class _Sent:
    desk: EncoderState
    due_at: float
    late_at: float


@dataclass(frozen=True, slots=True, eq=False)
class _Came:
    desk: EncoderState
    part: range
    vectors: Vectors


class BulkEmbedding:
    """One document. For the thread that stores it; machines are asked on the event loop meanwhile.

    Args:
        loan: Decides, and knows the machines.
        choice: Who takes part: not only this box.
        texts: The passages as they are embedded.
        rule: Returns what of the collection may leave, at any moment; asked before every batch that does.
        here: What this box does.
        told: Told how many are done.
    """

    def __init__(
        self,
        loan: EncoderOffload,
        choice: Choice,
        texts: Sequence[str],
        rule: Callable[[], OffloadRule],
        here: HereToo,
        told: Callable[[int], None],
    ) -> None:
        self._loan = loan
        self._texts = texts
        self._rule = rule
        self._here = here
        self._told = told
        self._takes_part = choice.place is Place.BOTH
        self._desks = [loan.desks[name] for name in choice.remotes]
        self._pool = Pool([len(text) if is_unicode(text) else LONGEST_TEXT + 1 for text in texts], LONGEST_TEXT)
        self._vectors = np.empty((len(texts), loan.courier.models.dimension), dtype=np.float32)
        self._changed = threading.Condition()
        self._came: deque[_Came] = deque()
        self._banned: set[str] = set()
        self._at_work = 0
        self._sent: dict[range, _Sent] = {}
        self._over = False

    def run(self) -> Vectors:
        """Returns the vectors, float32 [texts, dimension].

        Raises:
            InferenceFailed: It cannot be done here.
        """
        self._told(0)
        begun = [self._employ(desk) for desk in self._desks for _ in range(_IN_FLIGHT)]
        try:
            while not self._is_done():
                part = self._own_part()
                if part:
                    self._do(part)
            return self._vectors
        finally:
            with self._changed:
                self._over = True
                late = {sent.desk.name: sent.desk for sent in self._sent.values() if self._loan.clock() >= sent.late_at}
            for each in begun:
                each.cancel()
            dispatch = self._loan.courier.dispatch
            for desk in late.values():
                dispatch.post(partial(dispatch.went_wrong, desk.desk, "this box did it meanwhile", busy=False))

    def _is_done(self) -> bool:
        """Takes what came, and returns whether that was all."""
        while True:
            with self._changed:
                if not self._came:
                    return self._pool.is_full
                came = self._came.popleft()
            self._take(came)

    def _take(self, came: _Came) -> None:
        """Takes a batch, if one of it, which nobody could know, is what this box makes of it."""
        sample = random.choice(came.part)
        own = self._here.embed([self._texts[sample]])[0]
        name = came.desk.name
        with self._changed:
            if name in self._banned:
                self._pool.give_back(came.part)
            elif agree(own, came.vectors[sample - came.part.start]):
                fresh = np.array(self._pool.fill(came.part, name), dtype=np.intp)
                self._vectors[fresh] = came.vectors[fresh - came.part.start]
            else:
                self._banned.add(name)
                self._pool.give_back(came.part)
                self._pool.undo(name)
                courier = self._loan.courier
                courier.dispatch.post(lambda: courier.lied(came.desk, Work.PASSAGES))
            done = self._pool.filled
        self._told(done)

    def _own_part(self) -> range:
        """Waits until there is something to do here or something came; returns what to do here."""
        with self._changed:
            while not self._came:
                alone = not self._at_work
                if self._takes_part or alone:
                    part = self._pool.take_here(self._here.at_once)
                    if part or alone:
                        return part
                now = self._loan.clock()
                if part := self._worth_doubling(now):
                    return part
                late_at = min((sent.late_at for sent in self._sent.values() if sent.late_at > now), default=math.inf)
                self._changed.wait(None if late_at == math.inf else late_at - now)
            return range(0)

    def _worth_doubling(self, now: float) -> range:
        """Returns what others have and should be done here as well, if anything.

        That is what is late, and where this box takes part, what it would have sooner.
        """
        for part, sent in self._sent.items():
            doubled = self._pool.doubled(part, self._here.at_once)
            sooner = self._takes_part and now + self._loan.expected_s(Work.PASSAGES, len(doubled)) < sent.due_at
            if doubled and (sooner or now >= sent.late_at):
                return doubled
        return range(0)

    def _do(self, part: range) -> None:
        began = self._loan.clock()
        vectors = self._here.embed([self._texts[position] for position in part])
        took = self._loan.clock() - began
        self._loan.measure(Work.PASSAGES, len(part), took)
        with self._changed:
            fresh = np.array(self._pool.fill(part, HERE), dtype=np.intp)
            self._vectors[fresh] = vectors[fresh - part.start]
            done = self._pool.filled
        self._told(done)
        self._here.yield_to_queries(took)

    def _employ(self, desk: EncoderState) -> Future[None]:
        with self._changed:
            self._at_work += 1
        begun = self._loan.courier.dispatch.begin(self._work_off(desk))
        begun.add_done_callback(lambda _: self._leave())
        return begun

    def _leave(self) -> None:
        with self._changed:
            self._at_work -= 1
            self._changed.notify_all()

    async def _work_off(self, desk: EncoderState) -> None:
        """Has a machine do one batch after the other, until nothing is left; on the event loop.

        One that failed is relied on no more: this box takes part from then on. After a rest it is tried again, as its
        circuit breaker has it.
        """
        while not self._is_over(desk):
            if not self._loan.asks(desk, Work.PASSAGES):
                await self._rest()
            elif not (part := self._next_batch(desk)):
                return
            elif not await self._send(desk, part):
                await self._rest()

    async def _send(self, desk: EncoderState, part: range) -> bool:
        """Has a machine do a batch; returns whether it did."""
        courier = self._loan.courier
        patience = self._loan.waiting(
            desk, EncodeRequest(Work.PASSAGES, NO_CONTEXT, OffloadRule.ALLOWED, len(part), b"")
        )
        now, expected = self._loan.clock(), desk.paces[Work.PASSAGES].expected_s(len(part))
        due_at = math.inf if expected is None else now + expected
        late_at = math.inf if patience.hedge_s is None else now + patience.hedge_s
        with self._changed:
            self._sent[part] = _Sent(desk, due_at, late_at)
            self._changed.notify_all()
        parcel = EncoderCall(Work.PASSAGES, NO_CONTEXT, len(part), partial(self._seal, part), partial(self._ask, part))
        came: _Came | None = None
        try:
            came = _Came(desk, part, await courier.carry(desk, parcel, patience.give_up_s))
        except EdgeRagError as error:
            now = self._loan.clock()
            courier.announcer.taken_over(NO_CONTEXT, Work.PASSAGES, desk.name, str(error), len(part), now)
            with self._changed:
                self._takes_part = True
            return False
        finally:
            self._bring(part, came)
        return True

    async def _rest(self) -> None:
        """Waits a little, as one that does not work."""
        with self._changed:
            self._at_work -= 1
            self._changed.notify_all()
        try:
            await asyncio.sleep(_REST_S)
        finally:
            with self._changed:
                self._at_work += 1

    def _is_over(self, desk: EncoderState) -> bool:
        with self._changed:
            return self._over or desk.name in self._banned or self._rule() is not OffloadRule.ALLOWED

    def _next_batch(self, desk: EncoderState) -> range:
        most = batch_texts(desk.paces[Work.PASSAGES], self._loan.longest_s)
        most = min(most, _MOST_BYTES // (4 * self._loan.courier.models.dimension))
        with self._changed:
            return self._pool.take_away(most, MOST_CHARACTERS)

    def _bring(self, part: range, came: _Came | None) -> None:
        with self._changed:
            self._sent.pop(part, None)
            if came is None:
                self._pool.give_back(part)
            else:
                self._came.append(came)
            self._changed.notify_all()

    def _seal(self, part: range, remote: EncodingRemote) -> bytes:
        texts = [self._texts[position] for position in part]
        return remote.seal_texts(release_texts(self._rule(), self._loan.courier.models.embedder, texts, False))

    async def _ask(self, part: range, remote: EncodingRemote, sealed: bytes, within_s: float) -> EncoderResult[Vectors]:
        reply = await remote.embed(sealed, within_s)
        vectors = checked_vectors(reply.data, len(part), self._loan.courier.models.dimension)
        return EncoderResult(vectors, reply.queue_s, reply.compute_s)
