"""The order of passages in a prompt, chosen so that prompts begin alike.

A prefix cache saves what a prompt has in common with earlier ones up to the first difference. Ranks differ from
question to question, so passages in the order of their ranks seldom begin alike. With 500 passages of 256 tokens, four
a prompt by a Zipf law and a cache of 2,048 pages (``scripts.bench.engine.page_reuse``), 21% of all prompt tokens are
found in the order of ranks, 27% in that of the documents and 41% with the hottest first, which is what knowing the law
would give. Keeping the best passage at the end, next to the question, leaves 33%.

The order depends neither on what the cache holds, which differs from box to box and from hour to hour, nor on every
question that was asked before: an answer that the model chooses freely depends on its prompt, and equal questions are
to get equal answers. So the order is a list that is renewed rarely, whenever the number of questions has doubled and
after every ``RENEWED_AFTER`` of them. Until the first renewal passages stand as in their documents. What is about as
hot as before stays where it is, since every change costs the prompts that began alike.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import floor, inf, log2
from typing import Final

from edge_rag.core.passage import Passage
from edge_rag.core.query import PassageOrder

FIRST_RENEWAL: Final = 64
RENEWED_AFTER: Final = 1024
"""Questions."""

HALF_LIFE: Final = 4096
"""Questions after which one counts half as much."""

MOST_KEPT: Final = 16_384
"""Passages whose heat is kept; of more, the colder half is let go."""


@dataclass(frozen=True, slots=True, order=True)
class PassageKey:
    """A passage by its place; the order is that of the documents.

    Attributes:
        document: Id of its document.
        start: First character in the document's stored text.
        chunk: Its id, unlike any other passage's.
    """

    document: str
    start: int
    chunk: int


@dataclass(frozen=True, slots=True)
class HeatState:
    """What a heat knows, for going on after a restart.

    Attributes:
        counts: How often each passage was asked for, by its chunk's id, as it counts now; more than 0.
        order: The list in force, chunk ids, first ones first.
    """

    counts: dict[int, float]
    order: tuple[int, ...]


class PassageHeat:
    """How often passages were asked for, earlier questions counting less, and the list made of it. Any thread.

    Args:
        half_life: Questions after which one counts half as much, more than 0.
        most_kept: Passages that are kept, at least 2.
    """

    def __init__(self, half_life: float = HALF_LIFE, most_kept: int = MOST_KEPT) -> None:
        self._half_life = half_life
        self._most_kept = most_kept
        self._questions = 0
        self._renewal = FIRST_RENEWAL
        self._levels: dict[int, float] = {}  # log2 of the sum over questions q of 2^(q / half_life)
        self._ranks: dict[int, int] = {}
        self._changing = threading.Lock()
        self._renewed: Callable[[HeatState], None] | None = None

    def follow(self, renewed: Callable[[HeatState], None]) -> None:
        """Has every renewal of the list told, on the thread of the question that brought it about."""
        self._renewed = renewed

    def asked(self, keys: Iterable[PassageKey]) -> None:
        """Counts a question over these passages."""
        if self._count(keys) and self._renewed is not None:
            self._renewed(self.state())

    def _count(self, keys: Iterable[PassageKey]) -> bool:
        """Returns whether the list was renewed."""
        with self._changing:
            self._questions += 1
            now = self._questions / self._half_life
            for key in keys:
                level = self._levels.get(key.chunk)
                self._levels[key.chunk] = now if level is None else level + log2(1 + 2.0 ** (now - level))
            if len(self._levels) > self._most_kept:
                hottest = sorted(self._levels.items(), key=lambda entry: -entry[1])
                self._levels = dict(hottest[: self._most_kept // 2])
            if self._questions < self._renewal:
                return False
            self._renew(now)
            return True

    def arrange(self, keys: Sequence[PassageKey]) -> tuple[int, ...]:
        """Returns the indices of passages: those on the list in its order, then the others as in their documents."""
        with self._changing:
            ranks = [self._ranks.get(key.chunk, inf) for key in keys]
        return tuple(sorted(range(len(keys)), key=lambda index: (ranks[index], keys[index])))

    def state(self) -> HeatState:
        """Returns what it knows now."""
        with self._changing:
            now = self._questions / self._half_life
            counts = {chunk: 2.0 ** (level - now) for chunk, level in self._levels.items()}
            return HeatState(counts, tuple(sorted(self._ranks, key=self._ranks.__getitem__)))

    def resume(self, state: HeatState) -> None:
        """Goes on where another one was left; the next renewal comes after ``RENEWED_AFTER`` questions."""
        with self._changing:
            self._questions, self._renewal = 0, RENEWED_AFTER
            self._levels = {chunk: log2(count) for chunk, count in state.counts.items()}
            self._ranks = {chunk: rank for rank, chunk in enumerate(state.order)}

    def _renew(self, now: float) -> None:
        self._renewal = self._questions + min(self._questions, RENEWED_AFTER)
        heat = {chunk: floor(level - now) for chunk, level in self._levels.items() if level >= now + 1}
        listed = sorted(heat, key=lambda chunk: (-heat[chunk], self._ranks.get(chunk, inf), chunk))
        self._ranks = {chunk: rank for rank, chunk in enumerate(listed)}


class PassageArranger:
    """Lays passages out.

    Args:
        order: What decides.
        heat: How often they were asked for.
    """

    def __init__(self, order: PassageOrder, heat: PassageHeat) -> None:
        self._order = order
        self._heat = heat

    def asked(self, passages: Iterable[Passage]) -> None:
        """Counts a question over these passages."""
        self._heat.asked(map(_key, passages))

    def places(self, passages: Sequence[Passage]) -> tuple[int, ...]:
        """Returns the indices of ranked passages in the order of the prompt."""
        match self._order:
            case PassageOrder.HOT:
                return self._heat.arrange([_key(passage) for passage in passages])
            case PassageOrder.DOCUMENT:
                return tuple(sorted(range(len(passages)), key=lambda index: _key(passages[index])))
            case PassageOrder.RANK:
                return tuple(range(len(passages)))


def _key(passage: Passage) -> PassageKey:
    return PassageKey(passage.document_id, passage.start, passage.chunk_id)
