"""Who waits, and who of them is next.

Waiting sequences of one class, by client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from math import inf
from typing import Final

from edge_rag.core.query import Priority
from edge_rag.engine.scheduling.fair_share import VirtualTokenCounter
from edge_rag.engine.sequence import Sequence, SequenceId

Place = tuple[float, float, int]
"""Service of the client, when the request is due, and its id; smaller is next."""

_SLACK: Final = 8
"""How many entries of those that left are kept before they are cleared away, at least."""


class ClassQueue:
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


_Queue = tuple[Priority, Priority, str]
"""Present class, declared class and client: whose sequences rise one after the other."""


class WaitingQueue:
    """Sequences without a slot, and the order they are to get one in.

    First comes the class. Inside a class the client with the least service goes first, and among one client's sequences
    the one that is due first: at its deadline, or ``aging_s`` after it came if that is sooner.

    Fairness comes before deadlines, because a deadline is what a client says of itself: were it to count between
    clients, the one who always claims the shortest would shut out the others. It does order a client's own work. And
    since everything is due at some time, nothing waits for ever behind later requests with shorter deadlines.

    Aging works by client too. Whenever a client got no slot for ``aging_s`` though it had sequences waiting in a class,
    the next of them rises by one. Were every sequence to rise by its own waiting time, a client with a hundred of them
    would soon have most in the highest class, ahead of all that others send. A sequence that had to give way is past
    that: it rises for every ``aging_s`` it has waited in all, so that being interrupted comes to an end.

    Args:
        shares: The clients' service, by class.
        aging_s: Time after which a sequence rises by a class, seconds, more than 0; infinite for never.
    """

    def __init__(self, shares: dict[Priority, VirtualTokenCounter], aging_s: float) -> None:
        self._shares = shares
        self._aging_s = aging_s
        self._lanes = {
            (level, declared): ClassQueue(shares[level].service, self._due)
            for declared in Priority
            for level in Priority
            if level <= declared
        }
        self._by_level = [[self._lanes[level, came] for came in Priority if came >= level] for level in Priority]
        self._members: dict[SequenceId, Sequence] = {}
        self._hungry: dict[_Queue, int] = {}
        self._hunger: list[tuple[float, int, _Queue]] = []
        self._returned: list[tuple[float, SequenceId]] = []
        self._versions = count()

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Sequence]:
        """Yields all of them, the next one first; sorts, so not for every step."""
        lanes = self._lanes
        places = [((level, *lane.place_of(s)), s) for (level, _), lane in lanes.items() for s in lane]
        return iter([sequence for _, sequence in sorted(places, key=lambda entry: entry[0])])

    def add(self, sequence: Sequence, now: float) -> None:
        """Lets a sequence in, which keeps the time it waited before.

        Args:
            sequence: A sequence that entered the shares of its ``level``.
            now: Seconds.
        """
        sequence.waiting_since = now
        self._members[sequence.id] = sequence
        self._join(sequence, now)

    def admit(self, sequence: Sequence, now: float) -> None:
        """Lets a sequence go that got a slot."""
        sequence.waited_s += now - sequence.waiting_since
        self.discard(sequence)
        self._feed(_queue(sequence), now)

    def discard(self, sequence: Sequence) -> None:
        """Lets a waiting sequence go that is over."""
        del self._members[sequence.id]
        self._part(sequence)

    def rise(self, now: float) -> None:
        """Raises those whose time has come."""
        while self._hunger and self._hunger[0][0] <= now:
            _, version, queue = heappop(self._hunger)
            if self._hungry.get(queue) == version:
                level, declared, client = queue
                self._raise(self._lanes[level, declared].first_of(client), now)
        while self._returned and self._returned[0][0] <= now:
            at, name = heappop(self._returned)
            sequence = self._members.get(name)
            if sequence is not None and sequence.level > min(Priority) and self._returns_up_at(sequence) == at:
                self._raise(sequence, now)

    def first(self) -> Sequence | None:
        """Returns the sequence that is next, or None."""
        return self._best(self._by_level)

    def first_above(self, declared: Priority) -> Sequence | None:
        """Returns the next one of those that came in a higher class than this one, or None."""
        return self._best(
            [[self._lanes[level, came] for came in Priority if level <= came < declared] for level in Priority]
        )

    @staticmethod
    def _best(levels: list[list[ClassQueue]]) -> Sequence | None:
        for lanes in levels:
            heads = [head for lane in lanes if lane and (head := lane.first()) is not None]
            if heads:
                return min(heads, key=lambda head: head[0])[1]
        return None

    def _due(self, sequence: Sequence) -> float:
        return min(inf if sequence.deadline is None else sequence.deadline, sequence.arrived + self._aging_s)

    def _raise(self, sequence: Sequence, now: float) -> None:
        self._part(sequence)
        self._feed(_queue(sequence), now)
        self._shares[sequence.level].leave(sequence.client)
        sequence.level = Priority(sequence.level - 1)
        self._shares[sequence.level].enter(sequence.client)
        self._join(sequence, now)

    def _join(self, sequence: Sequence, now: float) -> None:
        """Puts a sequence into the lane of its level."""
        self._lanes[sequence.level, sequence.priority].add(sequence)
        queue = _queue(sequence)
        if queue not in self._hungry:
            self._expect(queue, now)
        if sequence.preemptions and sequence.level > min(Priority) and self._aging_s < inf:
            heappush(self._returned, (self._returns_up_at(sequence), sequence.id))

    def _part(self, sequence: Sequence) -> None:
        """Takes a sequence out of the lane of its level."""
        lane = self._lanes[sequence.level, sequence.priority]
        lane.discard(sequence)
        if not lane.has(sequence.client):
            del self._hungry[_queue(sequence)]

    def _feed(self, queue: _Queue, now: float) -> None:
        """Notes that a client got something out of a queue, if more of it waits there."""
        if queue in self._hungry:
            self._expect(queue, now)

    def _expect(self, queue: _Queue, now: float) -> None:
        """Lets a client's time without a slot begin."""
        version = self._hungry[queue] = next(self._versions)
        if queue[0] > min(Priority) and self._aging_s < inf:
            heappush(self._hunger, (now + self._aging_s, version, queue))

    def _returns_up_at(self, sequence: Sequence) -> float:
        classes = sequence.priority - sequence.level + 1
        return sequence.waiting_since + classes * self._aging_s - sequence.waited_s


def _queue(sequence: Sequence) -> _Queue:
    return sequence.level, sequence.priority, sequence.client
