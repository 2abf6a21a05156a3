"""A step's pages as a transaction.

enter       the pages that the plan needs are allocated        block tables unchanged
commit      they join the block tables                         the step counts
leave       pages that were not committed are freed            without commit, the step is undone
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, TracebackType

from edge_rag.engine.kv_cache.block_pool import BlockPool
from edge_rag.engine.kv_cache.prefix_cache import PageId
from edge_rag.engine.scheduling.plan import StepPlan
from edge_rag.engine.sequence import SequenceId


class Reservation:
    """Pages for one step; see the chart above."""

    def __init__(self, pool: BlockPool, plan: StepPlan) -> None:
        self._pool = pool
        self._plan = plan
        self._reserved: dict[SequenceId, list[PageId]] = {}

    def __enter__(self) -> Reservation:
        """Takes the pages."""
        pool = self._pool
        needs = {
            entry.sequence: max(0, pool.pages_for(entry.end + entry.drafted) - pool.held(entry.sequence))
            for entry in self._plan.entries
        }
        pages = pool.allocate(sum(needs.values()))
        for sequence, count in needs.items():
            self._reserved[sequence] = pages[:count]
            del pages[:count]
        return self

    @property
    def tables(self) -> Mapping[SequenceId, tuple[PageId, ...]]:
        return {sequence: (*self._pool.table(sequence), *reserved) for sequence, reserved in self._reserved.items()}

    def commit(self, accepted: Mapping[SequenceId, int] = MappingProxyType({})) -> None:
        """Appends the reserved pages to the block tables; those that held only rejected drafts are freed on leaving.

        Args:
            accepted: Accepted drafted tokens of each sequence; 0 where it is absent.
        """
        pool = self._pool
        for entry in self._plan.entries:
            sequence, reserved = entry.sequence, self._reserved[entry.sequence]
            tokens = entry.end + accepted.get(sequence, 0)
            kept = max(0, pool.pages_for(tokens) - pool.held(sequence))
            pool.extend(sequence, reserved[:kept])
            del reserved[:kept]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Frees the pages that were not committed."""
        for reserved in self._reserved.values():
            self._pool.free(reserved)
        self._reserved.clear()
