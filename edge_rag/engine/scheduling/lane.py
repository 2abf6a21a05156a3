"""Waiting sequences of one class, by client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from typing import Final

from edge_rag.engine.sequence import Sequence, SequenceId

Place = tuple[float, float, int]
"""Service of the client, when the request is due, and its id; smaller is next."""

_SLACK: Final = 8
"""How many entries of those that left are kept before they are cleared away, at least."""


class Lane:
    """Waiting sequences of one class: clients by their service, one client's sequences by when they are due.

    Both are heaps whose entries are looked at only when they come up, so that every operation costs the logarithm of
    what waits. An entry of a sequence that left is dropped then, one of a client that was served since moves down.

    Args:
        service: How much service a client had; may only grow while the client has sequences here.
        due: When a sequence is due; does not change.
    """

    def __init__(self, service: Callable[[str], float], due: Callable[[Sequence], float]) -> None:
        self._service = service
        self._due = due
        self._members: dict[SequenceId, Sequence] = {}
        self._sequences: dict[str, list[tuple[float, SequenceId]]] = {}
        self._sizes: dict[str, int] = {}
        self._clients: list[tuple[Place, int, str]] = []
        self._current: dict[str, int] = {}
        self._versions = count()

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._members.values())

    def add(self, sequence: Sequence) -> None:
        """Lets a sequence in."""
        self._members[sequence.id] = sequence
        client = sequence.client
        entry = (self._due(sequence), sequence.id)
        heap = self._sequences.setdefault(client, [])
        heappush(heap, entry)
        self._sizes[client] = self._sizes.get(client, 0) + 1
        if heap[0] == entry:
            self._announce(client, entry)

    def discard(self, sequence: Sequence) -> None:
        """Lets a sequence go."""
        del self._members[sequence.id]
        client = sequence.client
        self._sizes[client] -= 1
        heap = self._sequences[client]
        if not self._sizes[client]:
            del self._sequences[client], self._sizes[client], self._current[client]
        elif len(heap) > 2 * self._sizes[client] + _SLACK:
            heap[:] = [entry for entry in heap if entry[1] in self._members]
            heapify(heap)

    def has(self, client: str) -> bool:
        """Whether a client has sequences here."""
        return client in self._sizes

    def first_of(self, client: str) -> Sequence:
        """Returns the next one of a client that has sequences here."""
        return self._members[SequenceId(self._place(client)[2])]

    def first(self) -> tuple[Place, Sequence] | None:
        """Returns the next sequence and its place, or None."""
        while self._clients:
            place, version, client = self._clients[0]
            if self._current.get(client) != version:
                heappop(self._clients)
                continue
            now = self._place(client)
            if now == place:
                return place, self._members[SequenceId(place[2])]
            heapreplace(self._clients, (now, version, client))
        return None

    def place_of(self, sequence: Sequence) -> Place:
        """Returns the place of a sequence."""
        return self._service(sequence.client), self._due(sequence), sequence.id

    def _place(self, client: str) -> Place:
        heap = self._sequences[client]
        while heap[0][1] not in self._members:
            heappop(heap)
        return self._service(client), *heap[0]

    def _announce(self, client: str, head: tuple[float, SequenceId]) -> None:
        """Puts a client forward whose first sequence is a new one."""
        if len(self._clients) > 2 * len(self._sequences) + _SLACK:
            self._clients = [entry for entry in self._clients if self._current.get(entry[2]) == entry[1]]
            heapify(self._clients)
        self._current[client] = next(self._versions)
        heappush(self._clients, ((self._service(client), *head), self._current[client], client))
