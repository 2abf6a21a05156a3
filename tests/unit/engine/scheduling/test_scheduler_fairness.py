"""How long sequences wait: classes, aging and clients."""

from edge_rag.core.query import Priority
from edge_rag.engine.scheduling.policy import SchedulerLimits
from edge_rag.engine.sequence import Status
from tests.unit.engine.scheduling.scheduler_bench import Bench


def test_a_batch_request_finishes_however_many_interactive_ones_come() -> None:
    bench = Bench(40, SchedulerLimits(2, 64, 8), aging_s=20)
    low = bench.submit(3, 15, Priority.BATCH, client="nightly")
    for _ in range(400):
        bench.submit(3, 4, Priority.INTERACTIVE, client="counter")
        bench.step()
        if low.status is Status.FINISHED:
            break
    assert low.status is Status.FINISHED
    assert len(bench.scheduler.waiting) > 20, "there was no overload"


def test_a_batch_request_that_is_put_out_again_and_again_finishes_too() -> None:
    bench = Bench(40, SchedulerLimits(1, 64, 8), aging_s=20)
    low = bench.submit(3, 60, Priority.BATCH)
    for step in range(500):
        if step % 4 == 0:
            bench.submit(3, 2, Priority.INTERACTIVE, client="counter")
        bench.step()
        if low.status is Status.FINISHED:
            break
    assert low.status is Status.FINISHED
    assert low.preemptions > 5
    assert low.level is Priority.INTERACTIVE


def test_aging_preempts_no_request() -> None:
    bench = Bench(400, SchedulerLimits(4, 64, 8), aging_s=10)
    for _ in range(40):
        bench.submit(3, 30, Priority.BATCH)
    bench.run()
    assert sum(s.preemptions for s in bench.sequences.values()) == 0
    assert bench.finished == sorted(bench.finished)


def test_a_request_that_has_risen_is_not_displaced_any_more() -> None:
    bench = Bench(40, SchedulerLimits(1, 64, 8), aging_s=10)
    bench.submit(3, 25, Priority.NORMAL)
    low = bench.submit(3, 20, Priority.BATCH)
    while low.status is not Status.RUNNING:
        bench.step()
    bench.submit(3, 2, Priority.INTERACTIVE)
    bench.run()
    assert low.level is Priority.INTERACTIVE
    assert bench.finished == [1, 2, 3]


def test_an_interactive_request_does_not_wait_behind_a_batch_request_that_has_risen_and_lacks_a_slot() -> None:
    bench = Bench(40, SchedulerLimits(1, 64, 8), aging_s=10)
    running = bench.submit(3, 100, Priority.BATCH, client="a")
    bench.step()
    risen = bench.submit(3, 4, Priority.BATCH, client="b")
    for _ in range(25):
        bench.step()
    assert risen.level is Priority.INTERACTIVE
    bench.submit(3, 4, Priority.INTERACTIVE, client="c")
    plan = bench.step()
    assert (plan.preempted, plan.admitted) == ((running.id,), (3,))
    bench.run()
    assert bench.finished == [3, 2, 1]


def test_one_client_with_a_hundred_requests_does_not_shut_out_one_with_a_single_one() -> None:
    def longest_wait(queued: int, moments: range) -> float:
        """Most steps that a single request waits while another client has all slots, and so many requests more."""
        waits = []
        for moment in moments:
            bench = Bench(400, SchedulerLimits(4, 64, 8), aging_s=30)
            for n in range(4 + queued):
                bench.submit(3, 20 + n % 7, client="busy")
            for _ in range(moment):
                bench.step()
            single = bench.submit(3, 10, client="quiet")
            came = bench.now
            while single.status is not Status.RUNNING:
                bench.step()
            waits.append(bench.now - came)
        return max(waits)

    assert longest_wait(0, range(1, 20)) == 1
    assert longest_wait(96, range(100, 140, 3)) == 1


def test_a_client_without_a_slot_takes_one_of_a_client_with_several_and_no_more() -> None:
    bench = Bench(400, SchedulerLimits(3, 64, 8))
    busy = [bench.submit(3, 40, client="busy") for _ in range(3)]
    bench.step()
    quiet = [bench.submit(3, 40, client="quiet") for _ in range(2)]
    plan = bench.step()
    assert (plan.preempted, plan.admitted) == ((busy[2].id,), (quiet[0].id,))
    third = bench.submit(3, 40, client="third")
    plan = bench.step()
    assert (plan.preempted, plan.admitted) == ((busy[1].id,), (third.id,))
    bench.submit(3, 40, client="fourth")
    assert bench.step().preempted == ()


def test_a_slot_of_a_higher_class_is_not_taken() -> None:
    bench = Bench(400, SchedulerLimits(2, 64, 8))
    for _ in range(2):
        bench.submit(3, 40, Priority.INTERACTIVE, client="busy")
    bench.step()
    bench.submit(3, 40, Priority.NORMAL, client="quiet")
    assert bench.step().preempted == ()


def test_a_short_prompt_goes_before_long_ones_of_a_client_that_sends_many() -> None:
    """The step that follows its arrival computes all of it, and long prompts get a few tokens beside its answer."""
    bench = Bench(4000, SchedulerLimits(4, 64, 32))
    for _ in range(3):
        bench.submit(1000, 5, client="busy")
    bench.step()
    quiet = bench.submit(20, 5, client="quiet")
    counts = {entry.sequence: entry.count for entry in bench.step().entries}
    assert counts[quiet.id] == 20
    beside = {entry.sequence: entry.count for entry in bench.step().entries}
    assert beside[quiet.id] == 1
    assert sum(beside.values()) == 1 + 32 // 8


def test_clients_that_always_have_work_get_equal_service() -> None:
    bench = Bench(400, SchedulerLimits(4, 64, 8))
    for _ in range(60):
        bench.submit(4, 40, client="long answers")
        for _ in range(5):
            bench.submit(4, 5, client="short answers")
    served = dict.fromkeys(["long answers", "short answers"], 0)
    while len(bench.finished) < 200:
        for entry in bench.step().entries:
            served[bench.sequences[entry.sequence].client] += entry.count
    assert max(served.values()) < 1.3 * min(served.values())
