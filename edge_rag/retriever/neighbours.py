"""Neighbouring chunks that were found together become one passage; pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


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


Item = TypeVar("Item", bound=Placed)


@dataclass(frozen=True, slots=True)
class Run(Generic[Item]):
    """Items that follow each other without a gap.

    Attributes:
        items: In order of their place.
        rank: 0-based place of the best of them among the items that were given.
    """

    items: tuple[Item, ...]
    rank: int

    def touches(self, other: Run[Item]) -> bool:
        """Whether one follows the other in the same section."""
        mine, others = self.items, other.items
        return mine[0].section == others[0].section and (
            mine[-1].ordinal + 1 == others[0].ordinal or others[-1].ordinal + 1 == mine[0].ordinal
        )

    def with_all_of(self, other: Run[Item]) -> Run[Item]:
        """The run that both make."""
        items = tuple(sorted((*self.items, *other.items), key=lambda item: item.ordinal))
        return Run(items, min(self.rank, other.rank))


def merge_neighbours(items: Sequence[Item], fits: Callable[[Sequence[Item]], bool]) -> list[Run[Item]]:
    """Merges neighbours into runs, the best items first.

    Args:
        items: Best first, no two of one place.
        fits: Whether items that follow each other may become one passage.

    Returns:
        Every item in exactly one run; the run of the best item first.
    """
    runs: list[Run[Item]] = []
    for rank, item in enumerate(items):
        grown = Run((item,), rank)
        while (other := next((run for run in runs if _may_join(grown, run, fits)), None)) is not None:
            runs.remove(other)
            grown = grown.with_all_of(other)
        runs.append(grown)
    return sorted(runs, key=lambda run: run.rank)


def _may_join(one: Run[Item], other: Run[Item], fits: Callable[[Sequence[Item]], bool]) -> bool:
    return one.touches(other) and fits(one.with_all_of(other).items)
