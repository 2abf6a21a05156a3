import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.ids import RequestId
from edge_rag.core.monitoring.event import AuditEntry, AuditEventKind
from edge_rag.telemetry.audit_log import AuditLog, AuditPage
from tests.unit.telemetry.audit_events import audit_event


def filled(length: int, *requests: str) -> AuditLog:
    trail = AuditLog(length)
    for request in requests:
        trail.record(audit_event(request_id=request))
    return trail


def numbers(page: AuditPage) -> list[int]:
    return [entry.number for entry in page.entries]


def test_events_are_numbered_from_one_and_have_wall_clock_times() -> None:
    noon = datetime(2026, 5, 1, 12, tzinfo=UTC)
    times = iter([noon, noon + timedelta(seconds=2)])
    trail = AuditLog(8, clock=lambda: next(times))
    made = audit_event(), audit_event(AuditEventKind.ADMITTED)
    for each in made:
        trail.record(each)
    assert trail.entries().entries == (
        AuditEntry(1, noon, made[0]),
        AuditEntry(2, noon + timedelta(seconds=2), made[1]),
    )


def test_events_of_one_request_are_found_among_others() -> None:
    trail = filled(10, "a", "b", "a", "c", "a")
    assert numbers(trail.entries(RequestId("a"))) == [1, 3, 5]
    assert numbers(trail.entries(RequestId("a"), limit=2)) == [3, 5]
    assert numbers(trail.entries(RequestId("a"), after=3)) == [5]
    assert numbers(trail.entries(RequestId("nobody"))) == numbers(trail.entries(limit=0)) == []


@given(
    length=st.integers(1, 8),
    actions=st.lists(st.one_of(st.sampled_from(["a", "b"]), st.just("read")), max_size=40),
)
def test_a_reader_gets_every_event_once_or_as_dropped(length: int, actions: list[str]) -> None:
    trail = AuditLog(length)
    recorded, read, dropped_entries, last = 0, list[int](), 0, 0
    for action in [*actions, "read"]:
        if action == "read":
            page = trail.entries(after=last)
            assert numbers(page) == list(range(page.last - len(page.entries) + 1, page.last + 1))
            read += numbers(page)
            dropped_entries += page.dropped_entries
            last = page.last
        else:
            trail.record(audit_event(request_id=action))
            recorded += 1
            assert len(trail.entries().entries) == min(recorded, length)
    assert len(read) + dropped_entries == recorded == last
    assert read == sorted(set(read))


def test_threads_that_record_at_once_get_numbers_of_their_own() -> None:
    written: list[int] = []
    trail = AuditLog(4000, write=lambda entry: written.append(entry.number))
    together = threading.Barrier(4)

    def record() -> None:
        together.wait()
        for _ in range(1000):
            trail.record(audit_event())

    threads = [threading.Thread(target=record) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert numbers(trail.entries()) == written == list(range(1, 4001))


async def test_a_follower_wakes_for_events_recorded_on_another_thread() -> None:
    trail = filled(100, "before")
    async with aclosing(trail.follow(after=1)) as pages:
        following = asyncio.ensure_future(anext(pages))
        await asyncio.sleep(0)  # lets it begin to wait
        assert not following.done()
        await asyncio.to_thread(trail.record, audit_event(request_id="after"))
        page = await asyncio.wait_for(following, 30)
    assert [entry.event.request_id for entry in page.entries] == ["after"]


async def test_a_follower_of_one_request_sleeps_through_the_others() -> None:
    trail = AuditLog(100)
    async with aclosing(trail.follow(0, RequestId("mine"))) as pages:
        following = asyncio.ensure_future(anext(pages))
        for request in ("other", "mine"):
            await asyncio.to_thread(trail.record, audit_event(request_id=request))
        page = await asyncio.wait_for(following, 30)
    assert numbers(page) == [2]


async def test_a_slow_follower_gets_the_number_of_dropped_entries() -> None:
    trail = AuditLog(2)
    async with aclosing(trail.follow(after=0)) as pages:
        trail.record(audit_event())
        assert numbers(await anext(pages)) == [1]
        for _ in range(5):
            trail.record(audit_event())
        page = await anext(pages)
    assert (numbers(page), page.dropped_entries) == ([5, 6], 3)


async def test_closing_ends_followers_after_what_they_have_not_read() -> None:
    trail = filled(10, "a", "b")

    async def read(pages: AsyncIterator[AuditPage]) -> list[int]:
        return [number async for page in pages for number in numbers(page)]

    waiting, behind = asyncio.ensure_future(read(trail.follow(2))), asyncio.ensure_future(read(trail.follow(0)))
    await asyncio.sleep(0)  # lets both begin
    trail.close()
    assert await asyncio.wait_for(waiting, 30) == []
    assert await asyncio.wait_for(behind, 30) == [1, 2]
    trail.record(audit_event())
    assert numbers(trail.entries()) == [1, 2, 3]


def test_a_follower_with_a_closed_event_loop_does_not_affect_others() -> None:
    trail = AuditLog(10)
    pages = trail.follow(0)

    async def begin() -> AuditPage:
        trail.record(audit_event())
        return await anext(pages)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin())
    loop.close()
    trail.record(audit_event())
    assert numbers(trail.entries()) == [1, 2]
