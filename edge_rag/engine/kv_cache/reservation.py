"""A step's pages as a transaction.

enter       pages the plan needs are taken from the pool       tables unchanged
commit      they join the block tables                         the step happened
leave       without commit they go back                        the step never was
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, TracebackType

from edge_rag.engine.kv_cache.block_pool import BlockPool
from edge_rag.engine.kv_cache.prefix_cache import PageId
from edge_rag.engine.scheduling.plan import StepPlan
from edge_rag.engine.sequence import SequenceId


class Reservation:
    """Pages for one step; see the chart above.

    Args:
        pool: Where the pages come from.
        plan: The step.
    """

    def __init__(self, pool: BlockPool, plan: StepPlan) -> None:
        self._pool = pool
        self._plan = plan
        self._taken: dict[SequenceId, list[PageId]] = {}

    def __enter__(self) -> Reservation:
        """Takes the pages.

        Raises:
            PagesExhausted: There are not enough; nothing was taken.
        """
        pool = self._pool
        needs = {
            entry.sequence: max(0, pool.pages_for(entry.end + entry.drafted) - pool.held(entry.sequence))
            for entry in self._plan.entries
        }
        pages = pool.take(sum(needs.values()))
        for sequence, count in needs.items():
            self._taken[sequence] = pages[:count]
            del pages[:count]
        return self

    @property
    def tables(self) -> Mapping[SequenceId, tuple[PageId, ...]]:
        """Block table of each sequence in the step, with the reserved pages at its end."""
        return {sequence: (*self._pool.table(sequence), *taken) for sequence, taken in self._taken.items()}

    def commit(self, accepted: Mapping[SequenceId, int] = MappingProxyType({})) -> None:
        """Makes the reserved pages the sequences' own; those that only held what was drafted in vain go back.

        Args:
            accepted: How many of its drafted tokens each sequence says; 0 where it is not named.
        """
        pool = self._pool
        for entry in self._plan.entries:
            sequence, taken = entry.sequence, self._taken[entry.sequence]
            tokens = entry.end + accepted.get(sequence, 0)
            kept = max(0, pool.pages_for(tokens) - pool.held(sequence))
            pool.extend(sequence, taken[:kept])
            del taken[:kept]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Gives back whatever was not committed."""
        for taken in self._taken.values():
            self._pool.free(taken)
        self._taken.clear()
