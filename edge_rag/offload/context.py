"""What everything that is computed elsewhere shares: the event loop, what is known of each machine, the trail."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from edge_rag.offload.events import OffloadAnnouncer
from edge_rag.offload.remotes.circuit_breaker import Breaker
from edge_rag.offload.remotes.remote_state import RemoteDesk

_Out = TypeVar("_Out")


class Dispatch:
    """Its event loop runs on a thread of its own.

    Args:
        desks: The machines, by name.
        announcer: Tells what is decided.
        clock: Monotonic seconds.
    """

    def __init__(
        self, desks: Mapping[str, RemoteDesk], announcer: OffloadAnnouncer, clock: Callable[[], float]
    ) -> None:
        self.desks = desks
        self.announcer = announcer
        self.clock = clock
        self.loop = asyncio.new_event_loop()
        self._beginning = threading.Lock()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="offload", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Gives up what is under way, lets connections go and ends the thread; idempotent."""
        with self._beginning:
            if self._stopped:
                return
            self._stopped = True
        asyncio.run_coroutine_threadsafe(self._close(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def post(self, what: Callable[[], None]) -> None:
        """Has something done on the event loop, in order; any thread. Nothing happens once it has ended."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(what)

    def begin(self, what: Coroutine[Any, Any, _Out]) -> Future[_Out]:
        """Has something done on the event loop; any thread.

        Returns:
            What comes of it. Is cancelled once the loop ends, or at once where it has ended.
        """
        with self._beginning:
            if not self._stopped:
                return asyncio.run_coroutine_threadsafe(what, self.loop)
        what.close()
        nothing: Future[_Out] = Future()
        nothing.cancel()
        nothing.set_running_or_notify_cancel()
        return nothing

    def is_loop_thread(self) -> bool:
        """Whether the caller is on the event loop's thread."""
        return threading.current_thread() is self._thread

    def sending(self, desk: RemoteDesk, size: int, reading: asyncio.Task[object]) -> None:
        """Notes that a machine is sent something, and waits for what it says."""
        desk.under_way += 1
        desk.sent_bytes += size
        reading.add_done_callback(lambda _: self._landed(desk))
        self.tried(desk)

    def tried(self, desk: RemoteDesk) -> None:
        """Notes that a machine is asked something; it must have been let through."""
        now = self.clock()
        self._use(desk, desk.breaker.sent(now), now)

    def succeeded(self, desk: RemoteDesk) -> None:
        """Notes that a machine did what it was asked."""
        now = self.clock()
        self._use(desk, desk.breaker.succeeded(now), now)

    def went_wrong(self, desk: RemoteDesk, problem: str, busy: bool) -> None:
        """Notes that a machine failed; one that only had no room is not held against it."""
        desk.last_problem = problem
        if busy:
            return
        desk.failures += 1
        now = self.clock()
        self._use(desk, desk.breaker.failed(now), now)

    def _use(self, desk: RemoteDesk, breaker: Breaker, now: float) -> None:
        changed = desk.use(breaker)
        if changed is not None:
            given = {"failures": float(breaker.failures), "open_s": breaker.open_s}
            self.announcer.breaker(desk.remote.name, changed, given, now)

    def _landed(self, desk: RemoteDesk) -> None:
        desk.under_way -= 1

    async def _close(self) -> None:
        ours = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not ours]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for desk in self.desks.values():
            await desk.remote.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
