"""When a job will be stored, from measured rates and what waits before it; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from edge_rag.core.documents.jobs import JobBacklog, JobId

_MEMORY: Final = 0.95
"""Weight of all earlier documents after a new one: the last twenty decide."""

_LEAST_SPEED: Final = 0.02
_LEAST_MEASURED_S: Final = 0.5


class CostModel:
    """Estimates the seconds of a document as a constant and a part by size, fitted to the latest documents.

    Least squares with exponential forgetting; neither part is negative. If all documents have about the same size, half
    of the time is attributed to each part.
    """

    def __init__(self) -> None:
        self._count = self._size = self._squares = self._seconds = self._products = 0.0

    @property
    def is_measured(self) -> bool:
        return self._count > 0

    def add(self, size_bytes: int, seconds: float) -> None:
        """Adds a document that took so many seconds."""
        self._count = _MEMORY * self._count + 1
        self._size = _MEMORY * self._size + size_bytes
        self._squares = _MEMORY * self._squares + size_bytes**2
        self._seconds = _MEMORY * self._seconds + seconds
        self._products = _MEMORY * self._products + size_bytes * seconds

    def seconds(self, documents: int, size_bytes: int) -> float:
        """Returns the estimate for so many documents with so many bytes together, seconds; 0 if none was measured."""
        each, of_byte = self._fit()
        return documents * each + size_bytes * of_byte

    def _fit(self) -> tuple[float, float]:
        if not self._count:
            return 0.0, 0.0
        spread = self._count * self._squares - self._size**2
        if spread > 1e-9 * self._count * self._squares:
            of_byte = (self._count * self._products - self._size * self._seconds) / spread
            each = (self._seconds - of_byte * self._size) / self._count
            if each < 0:
                return 0.0, self._products / self._squares
            if of_byte > 0:
                return each, of_byte
        # Sizes that hardly differ say nothing about other sizes.
        half = self._seconds / 2
        return half / self._count, half / self._size if self._size else half / self._count


class Speed:
    """Seconds of work that are done in a second while documents are in work; less than 1 while ingest waits."""

    def __init__(self) -> None:
        self._worked = self._passed = 0.0

    def add(self, worked_s: float, passed_s: float) -> None:
        self._worked = _MEMORY * self._worked + worked_s
        self._passed = _MEMORY * self._passed + passed_s

    @property
    def value(self) -> float:
        """The speed; 1 until it was measured."""
        if self._passed < _LEAST_MEASURED_S:
            return 1.0
        return max(_LEAST_SPEED, self._worked / self._passed)


@dataclass(frozen=True, slots=True)
class Forecast:
    """When a job is expected to be stored.

    Attributes:
        documents_ahead: Documents of other jobs that are expected to be stored before its last one.
        time_left_s: Expected time until its last document is stored, seconds; None until a document was measured.
    """

    documents_ahead: int
    time_left_s: float | None


def forecast(job_id: JobId, backlogs: Sequence[JobBacklog], costs: CostModel, speed: float) -> Forecast:
    """Returns the forecast of a job that waits, under fair shares of owners.

    Earlier jobs of the same owner are counted as stored before it. Of each other owner as much is counted as fits into
    the time that this owner gets until then, because all get equal shares.

    Args:
        backlogs: What waits of all jobs, in order of their start.
        costs: Estimates seconds; until it is measured, documents are weighed by their number.
        speed: Seconds of work in a second.
    """
    place = next((place for place, each in enumerate(backlogs) if each.job_id == job_id), None)
    if place is None:
        return Forecast(0, 0.0 if costs.is_measured else None)
    owner = backlogs[place].owner

    def work(backlog: JobBacklog) -> float:
        documents = backlog.documents
        return costs.seconds(documents, backlog.size_bytes) if costs.is_measured else float(documents)

    before = [each for each in backlogs[:place] if each.owner == owner]
    own = work(backlogs[place]) + sum(map(work, before))
    others: dict[str, tuple[int, float]] = {}
    for each in backlogs:
        if each.owner != owner:
            documents, seconds = others.get(each.owner, (0, 0.0))
            others[each.owner] = documents + each.documents, seconds + work(each)
    ahead, total = float(sum(each.documents for each in before)), own
    for documents, seconds in others.values():
        counted = min(own, seconds)
        total += counted
        ahead += documents * (counted / seconds if seconds else 1.0)
    return Forecast(round(ahead), total / speed if costs.is_measured else None)
