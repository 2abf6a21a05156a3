"""Memory for messages is bounded, and shared among callers."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.errors import Overloaded
from edge_rag.service.limits import MessageBudget

CAPACITY = 64
LONG_S = 60.0


async def fill(budget: MessageBudget, account: str, size: int) -> int:
    count = 0
    while True:
        try:
            await budget.reserve(account, size, 0)
        except Overloaded:
            return count
        count += 1


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 2 * CAPACITY), st.booleans()), max_size=100))
def test_reservations_never_exceed_the_budget_and_all_come_back(moves: list[tuple[str, int, bool]]) -> None:
    async def move() -> None:
        budget = MessageBudget(CAPACITY)
        held: list[tuple[str, int]] = []
        waiting: Counter[str] = Counter()
        tasks: list[asyncio.Task[None]] = []

        async def reserve(account: str, size: int) -> None:
            waiting[account] += 1
            held.append((account, await budget.reserve(account, size, LONG_S)))
            waiting[account] -= 1

        for account, size, releases in moves:
            if releases and held:
                budget.release(*held.pop())
            else:
                tasks.append(asyncio.create_task(reserve(account, size)))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert sum(size for _, size in held) == budget.in_use <= CAPACITY
        while held:
            budget.release(*held.pop())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert not +waiting, "somebody waits although all is free"
        assert budget.in_use == 0
        await asyncio.gather(*tasks)

    asyncio.run(move())


async def test_a_greedy_account_leaves_half_to_the_next() -> None:
    budget = MessageBudget(CAPACITY)
    assert await fill(budget, "greedy", 1) == CAPACITY // 2
    assert await fill(budget, "other", 1) == CAPACITY // 4
    assert await fill(budget, "third", 1) == CAPACITY // 8


async def test_one_that_is_over_its_share_waits_and_others_pass_it() -> None:
    budget = MessageBudget(CAPACITY)
    await fill(budget, "greedy", 1)
    waits = asyncio.create_task(budget.reserve("greedy", 1, LONG_S))
    await asyncio.sleep(0)
    assert await budget.reserve("other", 1, 0) == 1
    assert not waits.done()
    budget.release("other", 1)
    budget.release("greedy", 1)
    assert await waits == 1


async def test_a_message_larger_than_the_budget_takes_all_of_it_alone() -> None:
    budget = MessageBudget(CAPACITY)
    assert await budget.reserve("large", 2 * CAPACITY, 0) == CAPACITY
    with pytest.raises(Overloaded):
        await budget.reserve("other", 1, 0)
    budget.release("large", CAPACITY)
    assert await budget.reserve("other", 1, 0) == 1


async def test_a_cancelled_reservation_takes_nothing() -> None:
    budget = MessageBudget(CAPACITY)
    await budget.reserve("large", CAPACITY, 0)
    waits = asyncio.create_task(budget.reserve("other", 1, LONG_S))
    await asyncio.sleep(0)
    budget.release("large", CAPACITY)  # grants it before it can run
    waits.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits
    assert budget.in_use == 0


def test_open_streams_of_many_callers_leave_room_for_other_messages() -> None:
    async def check() -> None:
        budget = MessageBudget(CAPACITY)
        open_streams = 0
        for number in range(CAPACITY):
            try:
                await budget.reserve(f"writer-{number}", 4, 0, stream=True)
            except Overloaded:
                continue
            open_streams += 1
        assert open_streams == CAPACITY * 3 // 4 // 4
        assert await budget.reserve("reader", 4, 0) == 4
        waiting = asyncio.create_task(budget.reserve("late", 4, LONG_S, stream=True))
        await asyncio.sleep(0)
        budget.release("reader", 4)
        await asyncio.sleep(0)
        assert not waiting.done()
        budget.release("writer-0", 4, stream=True)
        assert await waiting == 4

    asyncio.run(check())


def test_messages_that_wait_in_memory_are_bounded_and_the_next_is_refused_at_once() -> None:
    async def check() -> None:
        budget = MessageBudget(CAPACITY)
        await fill(budget, "reader", 4)
        waiting = [asyncio.create_task(budget.reserve("reader", 4, LONG_S, exists=True)) for _ in range(4)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await budget.reserve("reader", 4, LONG_S, exists=True)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        late = asyncio.create_task(budget.reserve("reader", 4, LONG_S, exists=True))
        await asyncio.sleep(0)
        assert not late.done()
        late.cancel()

    asyncio.run(check())
