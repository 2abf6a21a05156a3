"""One caller's blocking calls leave threads for others."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from edge_rag.core.limits.thread_shares import CALLER_THREADS, POOL_THREADS, ThreadShares


class Blocked:
    """A function that waits to be let go, and counts its threads."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.begun = threading.Semaphore(0)
        self.calls = 0

    def __call__(self) -> int:
        self.calls += 1
        self.begun.release()
        assert self.go.wait(60)
        return self.calls


async def test_a_caller_that_blocks_leaves_threads_for_others() -> None:
    blocked, shares = Blocked(), ThreadShares()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(POOL_THREADS))
    greedy = [asyncio.create_task(shares.run("greedy", blocked)) for _ in range(2 * POOL_THREADS)]
    for _ in range(CALLER_THREADS):
        await asyncio.to_thread(blocked.begun.acquire, timeout=60)
    assert await shares.run("other", lambda: "done") == "done"
    assert blocked.calls == CALLER_THREADS
    blocked.go.set()
    await asyncio.gather(*greedy)
    assert blocked.calls == 2 * POOL_THREADS
    assert shares._callers == {}


async def test_a_cancelled_call_holds_its_thread_until_the_function_ends() -> None:
    """Otherwise a caller that cancels at once could hold all threads."""
    blocked, shares = Blocked(), ThreadShares()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(POOL_THREADS))
    for _ in range(CALLER_THREADS):
        call = asyncio.create_task(shares.run("greedy", blocked))
        await asyncio.to_thread(blocked.begun.acquire, timeout=60)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    waiting = asyncio.create_task(shares.run("greedy", blocked))
    assert await shares.run("other", lambda: "done") == "done"
    assert blocked.calls == CALLER_THREADS
    blocked.go.set()
    await waiting
    await asyncio.get_running_loop().shutdown_default_executor()  # the cancelled ones end, too
    assert shares._callers == {}


def test_errors_are_those_of_the_function() -> None:
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        asyncio.run(ThreadShares().run("one", fail))
