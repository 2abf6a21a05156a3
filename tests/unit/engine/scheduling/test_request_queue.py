from math import inf

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from edge_rag.core.limits.fair_share import VirtualService
from edge_rag.core.query import Priority
from edge_rag.engine.scheduling.request_queue import WaitingQueue
from edge_rag.engine.sequence import Sequence, SequenceId, Status
from tests.support.examples import examples


class Line:
    """A queue with its shares."""

    def __init__(self, aging_s: float = inf) -> None:
        self.aging_s = aging_s
        self.shares = {priority: VirtualService() for priority in Priority}
        self.queue = WaitingQueue(self.shares, aging_s)
        self.came = 0

    def add(
        self,
        client: str = "c",
        priority: Priority = Priority.NORMAL,
        now: float = 0.0,
        deadline: float | None = None,
    ) -> Sequence:
        self.came += 1
        sequence = Sequence(SequenceId(self.came), priority, "d", [1], 1, client=client, arrived=now, deadline=deadline)
        sequence.status = Status.WAITING
        self.shares[priority].enter(client)
        self.queue.add(sequence, now)
        return sequence

    def serve(self, client: str, amount: float, level: Priority = Priority.NORMAL) -> None:
        self.shares[level].charge(client, amount)

    def take(self, now: float = 0.0) -> Sequence:
        sequence = self.queue.first()
        assert sequence is not None
        self.queue.admit(sequence, now)
        self.shares[sequence.level].charge(sequence.client, 10)
        self.shares[sequence.level].leave(sequence.client)
        return sequence

    def order(self) -> list[int]:
        return [self.take().id for _ in range(len(self.queue))]


def test_clients_take_turns_independent_of_what_each_requests() -> None:
    line = Line()
    for _ in range(100):
        line.add("busy")
    single = line.add("quiet")
    assert line.order().index(single.id) <= 1


def test_a_request_that_had_to_give_way_rises_by_all_its_waiting_but_not_by_its_time_with_a_slot() -> None:
    line = Line(aging_s=10)
    batch = line.add(priority=Priority.BATCH)
    line.queue.admit(batch, 6.0)
    batch.preemptions = 1
    line.queue.add(batch, 100.0)
    levels = []
    for now in (103.9, 104.0):
        line.queue.age(now)
        levels.append(batch.level)
    assert levels == [Priority.BATCH, Priority.NORMAL]


def test_service_is_not_saved_up_while_a_client_is_idle() -> None:
    shares = VirtualService()
    shares.enter("steady")
    shares.charge("steady", 1000)
    shares.enter("new")
    assert shares.service("new") == shares.service("steady")


def test_leaving_and_coming_back_does_not_wipe_out_service() -> None:
    shares = VirtualService()
    shares.enter("steady")
    shares.enter("coming and going")
    shares.charge("coming and going", 1000)
    shares.leave("coming and going")
    shares.enter("coming and going")
    assert shares.service("coming and going") == 1000
    assert shares.service("steady") == 0


def test_an_endless_row_of_new_clients_does_not_starve_an_old_one() -> None:
    line = Line()
    line.add("company")
    old = line.add("old")
    line.serve("old", 500)
    for n in range(1000):
        line.add(f"new {n}")
        if line.take() is old:
            break
    assert 0 < n < 300


def test_clients_that_left_are_forgotten() -> None:
    shares = VirtualService()
    shares.enter("steady")
    for n in range(10_000):
        shares.enter(f"client {n}")
        shares.charge(f"client {n}", 3)
        shares.charge("steady", 3)
        shares.leave(f"client {n}")
    assert shares.tracked_clients < 1000
    shares.leave("steady")
    assert shares.tracked_clients == 0


class WaitingMachine(RuleBasedStateMachine):
    """The queue's next is always the least of all that wait, after any arrivals, removals, promotions and service.

    ``hungry`` is a plain model of the time since which each client got no slot in each class.
    """

    @initialize(aging_s=st.sampled_from([3.0, 10.0, inf]))
    def start(self, aging_s: float) -> None:
        self.line = Line(aging_s)
        self.now = 0.0
        self.hungry: dict[tuple[int, int, str], float] = {}

    def queue_of(self, sequence: Sequence) -> tuple[int, int, str]:
        return sequence.level, sequence.priority, sequence.client

    def settle(self, fed: tuple[int, int, str] | None = None) -> None:
        present = {self.queue_of(s) for s in self.line.queue}
        self.hungry = {queue: since for queue, since in self.hungry.items() if queue in present}
        for queue in present:
            self.hungry.setdefault(queue, self.now)
        if fed in self.hungry:
            self.hungry[fed] = self.now

    @rule(
        client=st.sampled_from("abcd"),
        priority=st.sampled_from(Priority),
        allowance=st.none() | st.integers(1, 20),
    )
    def add(self, client: str, priority: Priority, allowance: int | None) -> None:
        self.line.add(client, priority, self.now, None if allowance is None else self.now + allowance)
        self.settle()

    @rule()
    def take(self) -> None:
        if self.line.queue:
            self.settle(self.queue_of(self.line.take(self.now)))

    @rule(pick=st.integers(0, 1000))
    def cancel(self, pick: int) -> None:
        members = list(self.line.queue)
        if members:
            sequence = members[pick % len(members)]
            self.line.queue.discard(sequence)
            self.line.shares[sequence.level].leave(sequence.client)
            self.settle()

    @rule(pick=st.integers(0, 1000), amount=st.integers(1, 50))
    def serve(self, pick: int, amount: int) -> None:
        members = list(self.line.queue)
        if members:
            sequence = members[pick % len(members)]
            self.line.shares[sequence.level].charge(sequence.client, amount)

    @rule(passes=st.floats(0, 8))
    def let_time_pass(self, passes: float) -> None:
        self.now += passes
        levels = {s.id: s.level for s in self.line.queue}
        due = {queue for queue, since in self.hungry.items() if since + self.line.aging_s <= self.now and queue[0]}
        self.line.queue.age(self.now)
        risen = [s for s in self.line.queue if s.level != levels[s.id]]
        assert {(levels[s.id], s.priority, s.client) for s in risen} == due
        assert len(risen) == len(due)
        for sequence in risen:
            assert sequence.level == levels[sequence.id] - 1
        self.settle()
        for queue in due:
            if queue in self.hungry:
                self.hungry[queue] = self.now

    @invariant()
    def the_first_is_the_least(self) -> None:
        if not hasattr(self, "line"):
            return
        places = {
            (s.level, self.line.shares[s.level].service(s.client), self._due(s), s.id): s for s in self.line.queue
        }
        first = self.line.queue.first()
        assert first is (places[min(places)] if places else None)
        assert [s.id for s in self.line.queue] == [places[place].id for place in sorted(places)]
        for declared in Priority:
            above = {place: s for place, s in places.items() if s.priority < declared}
            assert self.line.queue.first_above(declared) is (above[min(above)] if above else None)

    def _due(self, sequence: Sequence) -> float:
        return min(inf if sequence.deadline is None else sequence.deadline, sequence.arrived + self.line.aging_s)


WaitingMachine.TestCase.settings = settings(max_examples=examples(80), stateful_step_count=40, deadline=None)
TestAnyOrderOfWaiting = WaitingMachine.TestCase


@pytest.mark.parametrize("clients", [1, 50])
def test_requests_that_come_and_go_leave_nothing_behind(clients: int) -> None:
    line = Line(aging_s=10)
    held = [line.add(f"client {n % clients}") for n in range(50)]
    for n in range(5000):
        sequence = line.add(f"client {n % clients}")
        line.queue.discard(sequence)
        line.shares[sequence.level].leave(sequence.client)
    queue = line.queue._queues[Priority.NORMAL, Priority.NORMAL]
    assert sum(len(heap) for heap in queue._sequences.values()) < 20 * clients + 200
    assert len(queue._clients) < 300
    assert len(line.queue) == len(held)
