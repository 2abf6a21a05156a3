"""How many threads of a shared pool one caller may hold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

POOL_THREADS: Final = 32
"""Threads of the event loop's default executor."""

CALLER_THREADS: Final = 8
"""Threads that one caller's calls may hold; a quarter, so that four callers leave none idle and one leaves most."""


@dataclass(slots=True)
class _Caller:
    free: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CALLER_THREADS))
    users: int = 0


class ThreadShares:
    """Runs blocking functions on the default executor. Used from one event loop.

    A caller's functions beyond ``CALLER_THREADS`` wait in order, before they take a thread. A function whose caller was
    cancelled goes on and holds its thread until it ends.
    """

    def __init__(self) -> None:
        self._callers: dict[str, _Caller] = {}

    async def run(self, client: str, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs a function on another thread in the context of the caller and returns its result."""
        caller = self._callers.setdefault(client, _Caller())
        caller.users += 1
        try:
            await caller.free.acquire()
        except BaseException:
            self._leave(client, caller)
            raise
        call = partial(copy_context().run, partial(function, *args, **kwargs))
        running = asyncio.get_running_loop().run_in_executor(None, call)
        running.add_done_callback(lambda done: self._ended(client, caller, done))
        return await asyncio.shield(running)

    def _ended(self, client: str, caller: _Caller, done: asyncio.Future[R]) -> None:
        if not done.cancelled():
            done.exception()  # taken here, because nobody may wait for it any more
        caller.free.release()
        self._leave(client, caller)

    def _leave(self, client: str, caller: _Caller) -> None:
        caller.users -= 1
        if not caller.users:
            del self._callers[client]
