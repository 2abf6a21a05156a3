"""The key of waiting sequences: classes, fair order between clients, deadlines and aging."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from math import inf
from typing import Final

from edge_rag.core.limits.fair_share import VirtualService
from edge_rag.core.query import Priority
from edge_rag.engine.sequence import Sequence, SequenceId

PROMPT_WEIGHT: Final = 1
"""Charge for a computed prompt token; one found in the cache is free."""

GENERATED_WEIGHT: Final = 2
"""Charge for a generated token, which is computed one at a time (weights of Sheng et al., 2024)."""


Place = tuple[float, float, int]
"""Service of the client, due time of the sequence, and its id; smaller is next."""

_SLACK: Final = 8
"""Outdated heap entries that are kept at least before a heap is rebuilt."""


class ClassQueue:
    """Waiting sequences of one class: clients ordered by service, sequences of a client by due time.

    Both are heaps with lazy deletion, so every operation is logarithmic: an outdated entry is dropped or moved when it
    reaches the top.

    Args:
        service: Returns the service of a client; may only grow while the client has sequences here.
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
        """Adds a sequence."""
        self._members[sequence.id] = sequence
        client = sequence.client
        entry = (self._due(sequence), sequence.id)
        heap = self._sequences.setdefault(client, [])
        heappush(heap, entry)
        self._sizes[client] = self._sizes.get(client, 0) + 1
        if heap[0] == entry:
            self._add_candidate(client, entry)

    def discard(self, sequence: Sequence) -> None:
        """Removes a sequence."""
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
        return client in self._sizes

    def first_without(self, clients: Collection[str]) -> tuple[Place, Sequence] | None:
        """Returns the next sequence of a client that is not among these, and its place, or None."""
        places = (self._place_of_client(client) for client in self._sizes if client not in clients)
        place = min(places, default=None)
        return None if place is None else (place, self._members[SequenceId(place[2])])

    def first_of(self, client: str) -> Sequence:
        return self._members[SequenceId(self._place_of_client(client)[2])]

    def first(self) -> tuple[Place, Sequence] | None:
        """Returns the next sequence and its place, or None."""
        while self._clients:
            place, version, client = self._clients[0]
            if self._current.get(client) != version:
                heappop(self._clients)
                continue
            now = self._place_of_client(client)
            if now == place:
                return place, self._members[SequenceId(place[2])]
            heapreplace(self._clients, (now, version, client))
        return None

    def place_of(self, sequence: Sequence) -> Place:
        return self._service(sequence.client), self._due(sequence), sequence.id

    def _place_of_client(self, client: str) -> Place:
        heap = self._sequences[client]
        while heap[0][1] not in self._members:
            heappop(heap)
        return self._service(client), *heap[0]

    def _add_candidate(self, client: str, head: tuple[float, SequenceId]) -> None:
        if len(self._clients) > 2 * len(self._sequences) + _SLACK:
            self._clients = [entry for entry in self._clients if self._current.get(entry[2]) == entry[1]]
            heapify(self._clients)
        self._current[client] = next(self._versions)
        heappush(self._clients, ((self._service(client), *head), self._current[client], client))


_AgingKey = tuple[Priority, Priority, str]
"""Present class, own class and client; sequences with one key rise one after the other."""


class WaitingQueue:
    """Sequences without a slot, in the order in which they get one.

    The class comes first. Inside a class, the client with the least service goes first, and of its sequences the one
    with the earliest due time: its deadline, or ``aging_s`` after its arrival if that is sooner.

    Fairness comes before deadlines, because clients set their own deadlines: if deadlines counted between clients, one
    that always claims the shortest would starve the others. They order a client's own sequences only. Since every
    sequence has a due time, none waits for ever behind later ones with shorter deadlines.

    Aging is by client too. Whenever a client got no slot for ``aging_s`` while it had sequences waiting in a class, the
    next of them rises by one class. If every sequence rose by its own waiting time, a client with a hundred of them
    would soon have most of them in the highest class, ahead of the other clients. A preempted sequence rises for every
    ``aging_s`` it has waited in total, so that preemptions come to an end.

    Args:
        aging_s: Time after which a sequence rises by a class, seconds, more than 0; infinite for never.
    """

    def __init__(self, service: dict[Priority, VirtualService], aging_s: float) -> None:
        self._service = service
        self._aging_s = aging_s
        self._queues = {
            (level, own): ClassQueue(service[level].service, self._due)
            for own in Priority
            for level in Priority
            if level <= own
        }
        self._by_level = [[self._queues[level, own] for own in Priority if own >= level] for level in Priority]
        self._members: dict[SequenceId, Sequence] = {}
        self._timer_versions: dict[_AgingKey, int] = {}
        self._timers: list[tuple[float, int, _AgingKey]] = []
        self._preempted_timers: list[tuple[float, SequenceId]] = []
        self._versions = count()

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Sequence]:
        """Yields all sequences, next first; sorts, so not for every step."""
        queues = self._queues
        places = [((level, *queue.place_of(s)), s) for (level, _), queue in queues.items() for s in queue]
        return iter([sequence for _, sequence in sorted(places, key=lambda entry: entry[0])])

    def add(self, sequence: Sequence, now: float) -> None:
        sequence.waiting_since = now
        self._members[sequence.id] = sequence
        self._enqueue(sequence, now)

    def admit(self, sequence: Sequence, now: float) -> None:
        sequence.waited_s += now - sequence.waiting_since
        self.discard(sequence)
        self._restart_timer(_aging_key(sequence), now)

    def discard(self, sequence: Sequence) -> None:
        del self._members[sequence.id]
        self._dequeue(sequence)

    def age(self, now: float) -> None:
        """Raises the sequences whose aging time has passed by a class."""
        while self._timers and self._timers[0][0] <= now:
            _, version, key = heappop(self._timers)
            if self._timer_versions.get(key) == version:
                level, own, client = key
                self._promote(self._queues[level, own].first_of(client), now)
        while self._preempted_timers and self._preempted_timers[0][0] <= now:
            at, name = heappop(self._preempted_timers)
            sequence = self._members.get(name)
            if sequence is not None and sequence.level > min(Priority) and self._rises_at(sequence) == at:
                self._promote(sequence, now)

    def first(self) -> Sequence | None:
        """Returns the next sequence, or None."""
        return self._best(self._by_level)

    def first_above(self, priority: Priority) -> Sequence | None:
        """Returns the next sequence whose own class is above this one, or None."""
        return self._best(
            [[self._queues[level, own] for own in Priority if level <= own < priority] for level in Priority]
        )

    def first_without(self, clients: Collection[str], batch: bool) -> Sequence | None:
        """Returns the next sequence of a client that is not among these, or None."""
        owns = [own for own in Priority if batch or own < Priority.BATCH]
        for level in Priority:
            queues = [self._queues[level, own] for own in owns if own >= level]
            found = [first for queue in queues if queue and (first := queue.first_without(clients)) is not None]
            if found:
                return min(found, key=lambda first: first[0])[1]
        return None

    @staticmethod
    def _best(levels: list[list[ClassQueue]]) -> Sequence | None:
        for queues in levels:
            heads = [head for queue in queues if queue and (head := queue.first()) is not None]
            if heads:
                return min(heads, key=lambda head: head[0])[1]
        return None

    def _due(self, sequence: Sequence) -> float:
        return min(inf if sequence.deadline is None else sequence.deadline, sequence.arrived + self._aging_s)

    def _promote(self, sequence: Sequence, now: float) -> None:
        self._dequeue(sequence)
        self._restart_timer(_aging_key(sequence), now)
        self._service[sequence.level].leave(sequence.client)
        sequence.level = Priority(sequence.level - 1)
        self._service[sequence.level].enter(sequence.client)
        self._enqueue(sequence, now)

    def _enqueue(self, sequence: Sequence, now: float) -> None:
        self._queues[sequence.level, sequence.priority].add(sequence)
        key = _aging_key(sequence)
        if key not in self._timer_versions:
            self._start_timer(key, now)
        if sequence.preemptions and sequence.level > min(Priority) and self._aging_s < inf:
            heappush(self._preempted_timers, (self._rises_at(sequence), sequence.id))

    def _dequeue(self, sequence: Sequence) -> None:
        queue = self._queues[sequence.level, sequence.priority]
        queue.discard(sequence)
        if not queue.has(sequence.client):
            del self._timer_versions[_aging_key(sequence)]

    def _restart_timer(self, key: _AgingKey, now: float) -> None:
        if key in self._timer_versions:
            self._start_timer(key, now)

    def _start_timer(self, key: _AgingKey, now: float) -> None:
        """Starts a client's time without a slot."""
        version = self._timer_versions[key] = next(self._versions)
        if key[0] > min(Priority) and self._aging_s < inf:
            heappush(self._timers, (now + self._aging_s, version, key))

    def _rises_at(self, sequence: Sequence) -> float:
        classes = sequence.priority - sequence.level + 1
        return sequence.waiting_since + classes * self._aging_s - sequence.waited_s


def _aging_key(sequence: Sequence) -> _AgingKey:
    return sequence.level, sequence.priority, sequence.client
