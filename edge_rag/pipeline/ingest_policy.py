"""Which document is ingested next; pure.

Owners share the ingest by start-time fair queueing (Goyal, Vin, Cheng: Start-time Fair Queueing, SIGCOMM 1996) on the
seconds that their documents took, and the collections of an owner share its part in the same way. Within a collection
small documents take precedence over large ones, within a bound.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from edge_rag.core.documents.jobs import QueuedDocument

SIZE_STEP_BYTES: Final = 64 << 10
"""Size that lets one document that was accepted later go first."""

MAX_OVERTAKEN: Final = 256
"""Most documents accepted later that may overtake a large one of the same owner and collection."""

DEBT_HALF_LIFE_S: Final = 300.0
"""Time in which an owner's excess over the others counts half as much, seconds."""

LARGE_BYTES: Final = 1 << 20
"""A document of more bytes is large."""

_LEAST_DEBT_S: Final = 0.001

_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class IngestLimits:
    """How much is in work at once.

    Attributes:
        large: Large documents in work; an owner has one at most.
    """

    in_work: int = 4
    parsers: int = 2
    large: int = 2
    of_owner: int = 2


@dataclass(frozen=True, slots=True)
class DocumentInWork:
    """A document in work."""

    document: QueuedDocument
    parsing: bool


def rank(document: QueuedDocument) -> int:
    return document.order + min(document.size_bytes // SIZE_STEP_BYTES, MAX_OVERTAKEN)


def is_large(document: QueuedDocument) -> bool:
    return document.size_bytes > LARGE_BYTES


class IngestShares(Generic[_Key]):
    """Seconds that each of several sharers had beyond the others. Memory is bounded by the sharers that had more."""

    def __init__(self) -> None:
        self._virtual = 0.0
        self._finish: dict[_Key, float] = {}
        self._turns: dict[_Key, int] = {}
        self._numbers = itertools.count(1)

    def debt(self, key: _Key) -> float:
        """Returns the seconds that a sharer had beyond those who have had the least, at least 0."""
        return max(0.0, self._finish.get(key, 0.0) - self._virtual)

    def turn(self, key: _Key) -> tuple[float, int]:
        """Returns what to order sharers by: the debt, then how long ago the last turn began."""
        return self.debt(key), self._turns.get(key, 0)

    def begin(self, key: _Key) -> None:
        start = max(self._virtual, self._finish.get(key, 0.0))
        self._virtual, self._finish[key] = start, start
        self._turns[key] = next(self._numbers)

    def charge(self, key: _Key, seconds: float) -> None:
        """Charges the time of a turn, at least 0 seconds."""
        self._finish[key] = max(self._virtual, self._finish.get(key, 0.0)) + seconds

    def pass_time(self, seconds: float) -> None:
        """Halves debts every ``DEBT_HALF_LIFE_S``, and forgets sharers without one."""
        kept = 0.5 ** (seconds / DEBT_HALF_LIFE_S)
        self._finish = {
            key: self._virtual + (finish - self._virtual) * kept
            for key, finish in self._finish.items()
            if finish > self._virtual + _LEAST_DEBT_S
        }
        self._turns = {key: number for key, number in self._turns.items() if key in self._finish}


def choose_document(
    owners: Iterable[str],
    waiting: Callable[[str], Sequence[QueuedDocument]],
    in_work: Sequence[DocumentInWork],
    by_owner: IngestShares[str],
    by_collection: IngestShares[tuple[str, str]],
    limits: IngestLimits,
) -> QueuedDocument | None:
    """Returns the document to ingest next; None if none may begin now.

    Two documents of the same name in the same collection are never in work together.

    Args:
        waiting: Returns the documents of an owner that may be chosen: of each name in a collection the oldest only.
            Called for as few owners as possible.
    """
    names = {(each.document.collection, each.document.name) for each in in_work}
    for owner in sorted(owners, key=by_owner.turn):
        if not _has_place(owner, in_work, limits):
            continue
        candidates = [
            document
            for document in waiting(owner)
            if (document.collection, document.name) not in names and _may_begin(document, in_work, limits)
        ]
        if candidates:
            return min(candidates, key=lambda each: (by_collection.turn((owner, each.collection)), rank(each)))
    return None


def _has_place(owner: str, in_work: Sequence[DocumentInWork], limits: IngestLimits) -> bool:
    own = [each for each in in_work if each.document.owner == owner]
    left = limits.in_work - len(in_work) - (len(own) > 0)
    parsers_left = limits.parsers - sum(each.parsing for each in in_work) - any(each.parsing for each in own)
    return left > 0 and parsers_left > 0


def _may_begin(document: QueuedDocument, in_work: Sequence[DocumentInWork], limits: IngestLimits) -> bool:
    own = [each.document for each in in_work if each.document.owner == document.owner]
    if sum((each.job_id is None) == (document.job_id is None) for each in own) >= limits.of_owner:
        return False
    if not is_large(document):
        return True
    return sum(is_large(each.document) for each in in_work) < limits.large and not any(map(is_large, own))
