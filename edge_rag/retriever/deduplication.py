"""Which passages say the same; pure.

Two texts are nearly the same if of all runs of three words that either has, nine in ten are in both (Broder, On the
Resemblance and Containment of Documents, 1997; Jaccard index of shingles), not counting case and punctuation, and if
they have the same numbers and the same negations in the same order. So two revisions of a data sheet that differ in a
pressure are never the same, nor are an instruction and its negation, however long the rest is. Short texts, in which
one word changes more than a tenth of the runs, are the same only if all their words are.

Neighbouring chunks that were found together become one passage; pure.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

Item = TypeVar("Item")

SAME: Final = 0.9
"""Least Jaccard index of texts that are nearly the same."""

_RUN: Final = 3
_WORD: Final = re.compile(r"\w+(?:['’]\w+)?")
_FIXED: Final = re.compile(r"\d|n['’]t$|^(?:no|not|never|none|neither|nor|without|cannot)$").search


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What is compared of a text.

    Attributes:
        fixed: Its numbers and negations, in order.
        runs: Its runs of three words; of a shorter text, the text.
    """

    fixed: tuple[str, ...]
    runs: frozenset[tuple[str, ...]]

    @classmethod
    def of(cls, text: str) -> Fingerprint:
        """Returns the fingerprint of a text."""
        words = [word.casefold() for word in _WORD.findall(text)]
        fixed = tuple(word for word in words if _FIXED(word))
        runs = (tuple(words[first : first + _RUN]) for first in range(max(1, len(words) - _RUN + 1)))
        return cls(fixed, frozenset(runs))

    def is_nearly(self, other: Fingerprint) -> bool:
        """Whether the texts are nearly the same."""
        if self.fixed != other.fixed:
            return False
        smaller, larger = sorted((len(self.runs), len(other.runs)))
        if smaller < SAME * larger:
            return False
        shared = len(self.runs & other.runs)
        return shared >= SAME * (smaller + larger - shared)


def without_duplicates(
    items: Sequence[Item], fingerprint_of: Callable[[Item], Fingerprint], source_of: Callable[[Item], str]
) -> list[tuple[Item, tuple[Item, ...]]]:
    """Leaves out items that say the same as a better one from another source.

    Args:
        items: Best first.
        fingerprint_of: Fingerprint of an item's text.
        source_of: What it is from; items of one source are never left out for each other.

    Returns:
        The items that stay, best first, each with those that were left out for it.
    """
    kept: list[tuple[Item, list[Item]]] = []
    alike: defaultdict[tuple[str, ...], list[tuple[Item, Fingerprint, list[Item]]]] = defaultdict(list)
    for item in items:
        fingerprint = fingerprint_of(item)
        for better, other, left_out in alike[fingerprint.fixed]:
            if fingerprint.is_nearly(other) and source_of(better) != source_of(item):
                left_out.append(item)
                break
        else:
            stands_for: list[Item] = []
            kept.append((item, stands_for))
            alike[fingerprint.fixed].append((item, fingerprint, stands_for))
    return [(item, tuple(left_out)) for item, left_out in kept]


class Placed(Protocol):
    """Something that has a place in a document."""

    @property
    def section(self) -> object:
        """Document and headings; only what has the same is ever merged."""
        ...

    @property
    def ordinal(self) -> int:
        """Position in the document."""
        ...


PlacedItem = TypeVar("PlacedItem", bound=Placed)


@dataclass(frozen=True, slots=True)
class Run(Generic[PlacedItem]):
    """Items that follow each other without a gap.

    Attributes:
        items: In order of their place.
        rank: 0-based place of the best of them among the items that were given.
    """

    items: tuple[PlacedItem, ...]
    rank: int

    def touches(self, other: Run[PlacedItem]) -> bool:
        """Whether one follows the other in the same section."""
        mine, others = self.items, other.items
        return mine[0].section == others[0].section and (
            mine[-1].ordinal + 1 == others[0].ordinal or others[-1].ordinal + 1 == mine[0].ordinal
        )

    def with_all_of(self, other: Run[PlacedItem]) -> Run[PlacedItem]:
        """The run that both make."""
        items = tuple(sorted((*self.items, *other.items), key=lambda item: item.ordinal))
        return Run(items, min(self.rank, other.rank))


def merge_neighbours(
    items: Sequence[PlacedItem], fits: Callable[[Sequence[PlacedItem]], bool]
) -> list[Run[PlacedItem]]:
    """Merges neighbours into runs, the best items first.

    Args:
        items: Best first, no two of one place.
        fits: Whether items that follow each other may become one passage.

    Returns:
        Every item in exactly one run; the run of the best item first.
    """
    runs: list[Run[PlacedItem]] = []
    for rank, item in enumerate(items):
        grown = Run((item,), rank)
        while (other := next((run for run in runs if _may_join(grown, run, fits)), None)) is not None:
            runs.remove(other)
            grown = grown.with_all_of(other)
        runs.append(grown)
    return sorted(runs, key=lambda run: run.rank)


def _may_join(one: Run[PlacedItem], other: Run[PlacedItem], fits: Callable[[Sequence[PlacedItem]], bool]) -> bool:
    return one.touches(other) and fits(one.with_all_of(other).items)
