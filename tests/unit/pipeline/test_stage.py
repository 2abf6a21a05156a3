import threading
from collections.abc import Generator, Sequence

import pytest

from edge_rag.core.query import Priority, RequestContext
from edge_rag.errors import BrokenDocument, DeadlineExceeded, NotReady, Overloaded
from edge_rag.pipeline.stage import Stage, WorkLimit


class Held:
    """Work that waits until it is let go, so that what queues up meanwhile is known."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go = threading.Event()
        self.batches: list[list[int]] = []

    def __call__(self, batch: Sequence[int]) -> list[int | Exception]:
        self.batches.append(list(batch))
        self.begun.set()
        assert self.go.wait(10)
        return [BrokenDocument("thirteen") if number == 13 else number * 2 for number in batch]


def test_requests_queued_while_a_batch_runs_are_the_next_batch() -> None:
    work = Held()
    stage = Stage("doubling", work, capacity=10, max_batch=3)
    first = stage.submit(1, None)
    assert work.begun.wait(10)
    others = [stage.submit(number, None) for number in (2, 3, 4, 5)]
    work.go.set()
    assert [future.result(10).value for future in (first, *others)] == [2, 4, 6, 8, 10]
    assert work.batches == [[1], [2, 3, 4], [5]]
    stage.close()


def test_a_failed_request_does_not_affect_others_of_its_batch() -> None:
    work = Held()
    work.go.set()
    stage = Stage("doubling", work, capacity=10, max_batch=3)
    bad, good = stage.submit(13, None), stage.submit(4, None)
    with pytest.raises(BrokenDocument):
        bad.result(10)
    assert good.result(10).value == 8
    stage.close()


def test_a_batch_that_raises_fails_its_requests_and_the_stage_continues() -> None:
    def work(batch: Sequence[int]) -> list[int | Exception]:
        if 13 in batch:
            raise ValueError("thirteen")
        return list(batch)

    stage = Stage("fragile", work, capacity=10, max_batch=1)
    with pytest.raises(ValueError, match="thirteen"):
        stage.submit(13, None).result(10)
    assert stage.submit(1, None).result(10).value == 1
    assert stage.snapshot().completed == 2
    stage.close()


def test_a_full_queue_refuses_at_once_with_a_retry_delay() -> None:
    work = Held()
    stage = Stage("doubling", work, capacity=2, max_batch=1)
    running = stage.submit(1, None)
    assert work.begun.wait(10)
    waiting = [stage.submit(2, None), stage.submit(3, None)]
    with pytest.raises(Overloaded) as refused:
        stage.submit(4, None)
    assert refused.value.retry_after_s > 0
    snapshot = stage.snapshot()
    assert (snapshot.waiting, snapshot.capacity, snapshot.running, snapshot.refused) == (2, 2, 1, 1)
    work.go.set()
    assert [future.result(10).value for future in (running, *waiting)] == [2, 4, 6]
    stage.close()


def test_a_cancelled_request_frees_its_place_in_a_full_queue() -> None:
    work = Held()
    stage = Stage("doubling", work, capacity=1, max_batch=1)
    stage.submit(1, None)
    assert work.begun.wait(10)
    assert stage.submit(2, None).cancel()
    replacement = stage.submit(3, None)
    work.go.set()
    assert replacement.result(10).value == 6
    assert [2] not in work.batches
    stage.close()


def test_an_expired_deadline_never_starts_work() -> None:
    now = 100.0
    work = Held()
    stage = Stage("doubling", work, capacity=5, max_batch=1, clock=lambda: now)
    with pytest.raises(DeadlineExceeded):
        stage.submit(1, 100.0)
    running = stage.submit(2, None)
    assert work.begun.wait(10)
    late = stage.submit(3, 101.0)
    now = 102.0
    work.go.set()
    with pytest.raises(DeadlineExceeded, match="doubling"):
        late.result(10)
    assert running.result(10).value == 4
    assert work.batches == [[2]]
    stage.close()


def test_queue_time_and_compute_time_are_measured_separately() -> None:
    times = iter(float(second) for second in range(100))
    stage: Stage[int, int] = Stage("timed", list[int | Exception], capacity=5, max_batch=1, clock=lambda: next(times))
    timed = stage.submit(7, None).result(10)
    assert (timed.queue_s, timed.compute_s) == (1.0, 1.0)
    stage.close()


def test_a_closed_stage_fails_queued_requests_and_refuses_new_ones() -> None:
    work = Held()
    stage = Stage("doubling", work, capacity=5, max_batch=1)
    running = stage.submit(1, None)
    assert work.begun.wait(10)
    waiting = stage.submit(2, None)
    work.go.set()
    closing = threading.Thread(target=stage.close)
    closing.start()
    closing.join(10)
    assert running.result(10).value == 2
    assert isinstance(waiting.exception(10), NotReady) or waiting.result(10).value == 4
    with pytest.raises(NotReady):
        stage.submit(3, None)


def cost_of(request: int) -> float:
    return request


def caller(client: str, priority: Priority | None = None) -> RequestContext:
    return RequestContext(client=client, priority=priority)


def test_a_client_that_comes_later_is_next_after_the_batch_that_runs() -> None:
    work = Held()
    stage = Stage("doubling", work, capacity=20, max_batch=1)
    flood = [stage.submit(number, None, caller("flood")) for number in range(2, 10)]
    assert work.begun.wait(10)
    one = stage.submit(1, None, caller("one"))
    work.go.set()
    assert one.result(10).value == 2
    for future in flood:
        future.result(10)
    assert work.batches[1] == [1]
    stage.close()


def test_a_batch_of_several_requests_costs_no_more_than_its_limit() -> None:
    """A request's number is its cost here."""
    work = Held()
    stage = Stage("doubling", work, capacity=20, max_batch=8, limit=WorkLimit(cost_of, 10.0))
    first = stage.submit(1, None)
    assert work.begun.wait(10)
    others = [stage.submit(cost, None) for cost in (4, 5, 2, 40, 1, 1)]
    work.go.set()
    for future in (first, *others):
        future.result(10)
    assert work.batches == [[1], [4, 5], [2], [40], [1, 1]]
    stage.close()


def test_priority_orders_a_clients_own_requests_only() -> None:
    work = Held()
    stage = Stage("doubling", work, capacity=20, max_batch=1)
    first = stage.submit(1, None, caller("a"))
    assert work.begun.wait(10)
    others = [
        stage.submit(2, None, caller("a", Priority.BATCH)),
        stage.submit(3, None, caller("a", Priority.INTERACTIVE)),
        stage.submit(4, None, caller("b", Priority.BATCH)),
    ]
    work.go.set()
    for future in (first, *others):
        future.result(10)
    assert work.batches == [[1], [4], [3], [2]]
    stage.close()


def accepts(stage: Stage[int, int]) -> bool:
    try:
        stage.submit(1, None).cancel()
    except NotReady:
        return False
    return True


class Steps:
    """Work in as many steps as a request's number says, each of which waits to be let go."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.begun = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.stage: Stage[int, int] = Stage(
            "stepping", self.batch, capacity=20, max_batch=4, limit=WorkLimit(cost_of, 2.0, self.steps)
        )

    def batch(self, requests: Sequence[int]) -> list[int | Exception]:
        self.log.append(f"batch {requests}")
        return [number * 2 for number in requests]

    def steps(self, request: int) -> Generator[None, None, int]:
        for number in range(request):
            self.log.append(f"{request}.{number}")
            self.begun.release()
            assert self.go.acquire(timeout=10)
            yield
        return request * 2


def test_others_run_between_the_steps_of_a_large_request() -> None:
    work = Steps()
    large = work.stage.submit(3, None, caller("large"))
    assert work.begun.acquire(timeout=10)
    small = work.stage.submit(1, None, caller("small"))
    work.go.release(3)
    assert small.result(10).value == 2
    assert large.result(10).value == 6
    assert work.log == ["3.0", "batch [1]", "3.1", "3.2"]
    assert work.stage.snapshot().completed == 2
    work.stage.close()


def test_large_requests_run_one_after_the_other() -> None:
    work = Steps()
    first = work.stage.submit(3, None, caller("a"))
    assert work.begun.acquire(timeout=10)
    second = work.stage.submit(4, None, caller("b"))
    work.go.release(7)
    assert (first.result(10).value, second.result(10).value) == (6, 8)
    assert work.log == ["3.0", "3.1", "3.2", "4.0", "4.1", "4.2", "4.3"]
    work.stage.close()


def test_a_cancelled_large_request_ends_after_its_step() -> None:
    work = Steps()
    large = work.stage.submit(30, None, caller("large"))
    assert work.begun.acquire(timeout=10)
    assert large.cancel()
    work.go.release(30)
    assert work.stage.submit(1, None).result(10).value == 2
    assert work.log == ["30.0", "batch [1]"]
    work.stage.close()


def test_a_closed_stage_ends_a_large_request_after_its_step() -> None:
    work = Steps()
    large = work.stage.submit(30, None, caller("large"))
    assert work.begun.acquire(timeout=10)
    closing = threading.Thread(target=work.stage.close)
    closing.start()
    while accepts(work.stage):
        pass
    work.go.release(30)
    with pytest.raises(NotReady):
        large.result(10)
    closing.join(10)
    assert work.log == ["30.0"]
