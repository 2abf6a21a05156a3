"""What everything that is computed elsewhere shares: the event loop, what is known of each machine, the trail.

What all flights share: this box's generator, and what is known of it and of the remotes.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from edge_rag.core.generation import Generated, GenerationRequest
from edge_rag.core.placement import OffloadRule, OffloadUse
from edge_rag.offload.events import OffloadAnnouncer
from edge_rag.offload.generation.redaction import Redactor
from edge_rag.offload.generation.request_builder import PromptText, ReplyMapping, release
from edge_rag.offload.generation.timeouts import Bounds
from edge_rag.offload.ports import LocalGenerator, UsageSink
from edge_rag.offload.remotes.circuit_breaker import Breaker
from edge_rag.offload.remotes.latency_model import Estimate, LatencyModel, Sample
from edge_rag.offload.remotes.remote_state import Kind, RemoteState, kind_of

_Out = TypeVar("_Out")


class LoopThread:
    """Its event loop runs on a thread of its own.

    Args:
        desks: The machines, by name.
        announcer: Tells what is decided.
        clock: Monotonic seconds.
    """

    def __init__(
        self, desks: Mapping[str, RemoteState], announcer: OffloadAnnouncer, clock: Callable[[], float]
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

    def sending(self, desk: RemoteState, size: int, reading: asyncio.Task[object]) -> None:
        """Notes that a machine is sent something, and waits for what it says."""
        desk.in_flight += 1
        desk.sent_bytes += size
        reading.add_done_callback(lambda _: self._landed(desk))
        self.tried(desk)

    def tried(self, desk: RemoteState) -> None:
        """Notes that a machine is asked something; it must have been let through."""
        now = self.clock()
        self._use(desk, desk.breaker.sent(now), now)

    def succeeded(self, desk: RemoteState) -> None:
        """Notes that a machine did what it was asked."""
        now = self.clock()
        self._use(desk, desk.breaker.succeeded(now), now)

    def went_wrong(self, desk: RemoteState, problem: str, busy: bool) -> None:
        """Notes that a machine failed; one that only had no room is not held against it."""
        desk.last_problem = problem
        if busy:
            return
        desk.failures += 1
        now = self.clock()
        self._use(desk, desk.breaker.failed(now), now)

    def _use(self, desk: RemoteState, breaker: Breaker, now: float) -> None:
        changed = desk.use(breaker)
        if changed is not None:
            given = {"failures": float(breaker.failures), "open_s": breaker.open_s}
            self.announcer.breaker(desk.remote.name, changed, given, now)

    def _landed(self, desk: RemoteState) -> None:
        desk.in_flight -= 1

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


_USUAL_TOKENS = 128
"""How long an answer is taken to be until one was measured."""


class OffloadContext(LoopThread):
    """Shared by all flights.

    Args:
        local: This box's generator.
        desks: The remotes, by name.
        bounds: How long remotes are waited for.
        redactor: Knows what must not leave where it is redacted.
        announcer: Tells what is decided.
        books: Keep what clients used.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        local: LocalGenerator,
        desks: Mapping[str, RemoteState],
        bounds: Bounds,
        redactor: Redactor,
        announcer: OffloadAnnouncer,
        books: UsageSink,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(desks, announcer, clock)
        self.local = local
        self.bounds = bounds
        self.books = books
        self._redactor = redactor
        self._salt = secrets.token_bytes(16)
        self._meters = {kind: LatencyModel() for kind in Kind}

    def at(self, when: float, what: Callable[[], None]) -> asyncio.TimerHandle:
        """Does something at a time on its clock; on the event loop."""
        return self.loop.call_later(max(0.0, when - self.clock()), what)

    @property
    def can_redact(self) -> bool:
        """Whether there are patterns to redact by."""
        return bool(self._redactor)

    def seal(self, desk: RemoteState, request: GenerationRequest, prompt: PromptText) -> tuple[bytes, ReplyMapping]:
        """Returns exactly what a remote is sent, and what makes sense of what comes back.

        Raises:
            PermissionDenied: Nothing of the collection may leave.
        """
        order, homecoming = release(request, prompt, self.local.vocabulary, self._salt, self._redactor)
        return desk.remote.seal(order), homecoming

    def went_well(self, desk: RemoteState) -> None:
        """Notes that a remote finished an answer."""
        desk.answers += 1
        self.succeeded(desk)

    def measure_local(self, request: GenerationRequest, generated: Generated) -> None:
        """Takes what an answer took here."""
        if generated.first_token_s is None or not generated.usage.model_steps:
            return
        finish = generated.queue_s + generated.compute_s
        prompt, said = max(1, generated.usage.prompt_tokens), max(1, generated.usage.generated_tokens)
        sample = Sample(generated.queue_s, min(generated.first_token_s, finish), finish, prompt, said)
        self._meters[kind_of(request.mode)].observe(sample)

    def local_outlook(self, request: GenerationRequest, prompt_tokens: int) -> Estimate:
        """Returns what is expected here of a request that came now."""
        busy = self.local.stats()
        meter = self._meters[kind_of(request.mode)]
        return meter.outlook(
            prompt_tokens, request.sampling.max_tokens, busy.slots_busy + busy.waiting, max(1, busy.slots)
        )

    def has_free_slot(self) -> bool:
        """Whether a request that came now would not wait here."""
        busy = self.local.stats()
        return busy.waiting == 0 and busy.slots_busy < busy.slots

    def usual_tokens(self, request: GenerationRequest) -> int:
        """Returns how long an answer of its kind mostly is, tokens."""
        kind = kind_of(request.mode)
        known = [meter.tokens for meter in (self._meters[kind], *(desk.meters[kind] for desk in self.desks.values()))]
        return round(max((tokens for tokens in known if tokens is not None), default=_USUAL_TOKENS))

    def able(self, desk: RemoteState, request: GenerationRequest) -> bool:
        """Whether a remote can write such an answer."""
        redacted = request.offload is OffloadRule.REDACTED
        return OffloadUse.GENERATE in desk.remote.uses and desk.remote.able(request.mode, request.format, redacted)
