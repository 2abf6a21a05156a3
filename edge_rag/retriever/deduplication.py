"""Near-duplicate passages, and the merging of adjacent ones; pure.

Two texts are near-duplicates if nine in ten of all three-word shingles that either has are in both (Jaccard index;
Broder, On the Resemblance and Containment of Documents, 1997), ignoring case and punctuation, and if they have the same
numbers and negations in the same order. Two revisions of a data sheet that differ in a pressure are therefore never
duplicates, nor are an instruction and its negation, however long the rest is. Short texts, in which one word changes
more than a tenth of the shingles, are duplicates only if all their words are equal.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

Item = TypeVar("Item")

NEAR_DUPLICATE: Final = 0.9
"""Least Jaccard index of near-duplicates."""

_SHINGLE_WORDS: Final = 3
_WORD: Final = re.compile(r"\w+(?:['’]\w+)?")
_FIXED: Final = re.compile(r"\d|n['’]t$|^(?:no|not|never|none|neither|nor|without|cannot)$").search


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Numbers and negations of a text, in order, and its three-word sequences (the whole text if it is shorter)."""

    fixed: tuple[str, ...]
    shingles: frozenset[tuple[str, ...]]

    @classmethod
    def of(cls, text: str) -> Fingerprint:
        words = [word.casefold() for word in _WORD.findall(text)]
        fixed = tuple(word for word in words if _FIXED(word))
        shingles = (
            tuple(words[first : first + _SHINGLE_WORDS]) for first in range(max(1, len(words) - _SHINGLE_WORDS + 1))
        )
        return cls(fixed, frozenset(shingles))

    def is_near_duplicate(self, other: Fingerprint) -> bool:
        """Whether the texts are near-duplicates."""
        if self.fixed != other.fixed:
            return False
        smaller, larger = sorted((len(self.shingles), len(other.shingles)))
        if smaller < NEAR_DUPLICATE * larger:
            return False
        shared = len(self.shingles & other.shingles)
        return shared >= NEAR_DUPLICATE * (smaller + larger - shared)


def without_duplicates(
    items: Sequence[Item], fingerprint_of: Callable[[Item], Fingerprint], source_of: Callable[[Item], str]
) -> list[tuple[Item, tuple[Item, ...]]]:
    """Removes near-duplicates of a better item from another source.

    Returns the remaining items, best first, each with the items removed for it.
    """
    kept: list[tuple[Item, list[Item]]] = []
    alike: defaultdict[tuple[str, ...], list[tuple[Item, Fingerprint, list[Item]]]] = defaultdict(list)
    for item in items:
        fingerprint = fingerprint_of(item)
        for better, other, duplicates_of_better in alike[fingerprint.fixed]:
            if fingerprint.is_near_duplicate(other) and source_of(better) != source_of(item):
                duplicates_of_better.append(item)
                break
        else:
            duplicates: list[Item] = []
            kept.append((item, duplicates))
            alike[fingerprint.fixed].append((item, fingerprint, duplicates))
    return [(item, tuple(duplicates_of_better)) for item, duplicates_of_better in kept]


class Positioned(Protocol):
    """An item with a position in a document."""

    @property
    def section(self) -> object:
        """Document and headings; only items of one section are merged."""
        ...

    @property
    def ordinal(self) -> int:
        """Position in the document."""
        ...


PositionedT = TypeVar("PositionedT", bound=Positioned)


@dataclass(frozen=True, slots=True)
class Run(Generic[PositionedT]):
    """Items that follow each other without a gap.

    Attributes:
        rank: 0-based rank of the best of them among the items given.
    """

    items: tuple[PositionedT, ...]
    rank: int

    def touches(self, other: Run[PositionedT]) -> bool:
        own, others = self.items, other.items
        return own[0].section == others[0].section and (
            own[-1].ordinal + 1 == others[0].ordinal or others[-1].ordinal + 1 == own[0].ordinal
        )

    def joined_with(self, other: Run[PositionedT]) -> Run[PositionedT]:
        items = tuple(sorted((*self.items, *other.items), key=lambda item: item.ordinal))
        return Run(items, min(self.rank, other.rank))


def merge_adjacent(
    items: Sequence[PositionedT], fits: Callable[[Sequence[PositionedT]], bool]
) -> list[Run[PositionedT]]:
    """Merges adjacent items, best first, into runs; the run of the best item is first."""
    runs: list[Run[PositionedT]] = []
    for rank, item in enumerate(items):
        merged = Run((item,), rank)
        while (other := next((run for run in runs if _may_join(merged, run, fits)), None)) is not None:
            runs.remove(other)
            merged = merged.joined_with(other)
        runs.append(merged)
    return sorted(runs, key=lambda run: run.rank)


def _may_join(one: Run[PositionedT], other: Run[PositionedT], fits: Callable[[Sequence[PositionedT]], bool]) -> bool:
    return one.touches(other) and fits(one.joined_with(other).items)
