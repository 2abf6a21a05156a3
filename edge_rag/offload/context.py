"""Resources that all kinds of offloaded work share: an event loop thread, and the state of each remote."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from edge_rag.core.monitoring.event import AuditEvent, AuditEventKind
from edge_rag.core.ports import AuditSink
from edge_rag.offload.remotes.circuit_breaker import BreakerState, CircuitBreaker
from edge_rag.offload.remotes.remote_state import RemoteState

_Out = TypeVar("_Out")

_BREAKERS: Final = {
    BreakerState.OPEN: "gets no requests: its circuit breaker is open",
    BreakerState.HALF_OPEN: "gets one trial request: its circuit breaker is half open",
    BreakerState.CLOSED: "gets requests again: its circuit breaker is closed",
}


class LoopThread:
    """An asyncio event loop on a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._submitting = threading.Lock()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="offload", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self, cleanup: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Cancels all tasks, runs ``cleanup`` on the loop and ends the thread; idempotent."""
        with self._submitting:
            if self._stopped:
                return
            self._stopped = True
        asyncio.run_coroutine_threadsafe(self._close(cleanup), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def post(self, callback: Callable[[], None]) -> None:
        """Runs a callback on the loop, in order; any thread. Does nothing after ``stop``."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(callback)

    def submit(self, coroutine: Coroutine[Any, Any, _Out]) -> Future[_Out]:
        """Runs a coroutine on the loop; any thread.

        Returns:
            Its future, which is cancelled when the loop stops, or at once if it has stopped.
        """
        with self._submitting:
            if not self._stopped:
                return asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        coroutine.close()
        cancelled: Future[_Out] = Future()
        cancelled.cancel()
        cancelled.set_running_or_notify_cancel()
        return cancelled

    def is_current(self) -> bool:
        """Whether the caller runs on this thread."""
        return threading.current_thread() is self._thread

    async def _close(self, cleanup: Callable[[], Coroutine[Any, Any, None]]) -> None:
        current = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not current]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await cleanup()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()


class RemoteRegistry:
    """The state of every remote, updated by the outcome of requests. For the event loop; any thread may read.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, states: Mapping[str, RemoteState], audit: AuditSink, clock: Callable[[], float]) -> None:
        self.states = states
        self.clock = clock
        self._audit = audit

    def track(self, state: RemoteState, sent_bytes: int, task: asyncio.Task[object]) -> None:
        """Counts a request as in flight until its task ends."""
        state.in_flight += 1
        state.sent_bytes += sent_bytes
        task.add_done_callback(lambda _: self._untrack(state))
        self.record_attempt(state)

    def record_attempt(self, state: RemoteState) -> None:
        now = self.clock()
        self._set_breaker(state, state.breaker.on_attempt(now), now)

    def record_success(self, state: RemoteState) -> None:
        now = self.clock()
        self._set_breaker(state, state.breaker.on_success(now), now)

    def record_failure(self, state: RemoteState, problem: str, busy: bool) -> None:
        """Records that a request failed; a remote that was only busy keeps its breaker as it is."""
        state.last_problem = problem
        if busy:
            return
        state.failures += 1
        now = self.clock()
        self._set_breaker(state, state.breaker.on_failure(now), now)

    async def close(self) -> None:
        for state in self.states.values():
            await state.remote.close()

    def _set_breaker(self, state: RemoteState, breaker: CircuitBreaker, now: float) -> None:
        changed = state.set_breaker(breaker)
        if changed is not None:
            values = {"failures": float(breaker.failures), "open_s": breaker.open_s}
            reason = f"{state.remote.name} {_BREAKERS[changed]}"
            self._audit.record(AuditEvent(AuditEventKind.BREAKER, None, "", None, reason, values, now))

    def _untrack(self, state: RemoteState) -> None:
        state.in_flight -= 1
