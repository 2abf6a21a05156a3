"""Reads a remote's answer stream: checks and emits its chunks and enforces timeouts.

Everything here runs on the room's event loop.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from edge_rag.core.generation import GenerationRequest
from edge_rag.errors import RemoteFailed
from edge_rag.generator.continuation import Continuation
from edge_rag.offload.generation.context import OffloadContext
from edge_rag.offload.generation.timeouts import Action, Assessment, StreamProgress, assess
from edge_rag.offload.ports import RemoteEvent, RemoteFinished, RemoteLoad
from edge_rag.offload.remotes.latency_model import Sample
from edge_rag.offload.remotes.remote_state import RemoteState


class StreamObserver(Protocol):
    """Is called as a remote stream progresses. The answer's end is emitted by its continuation."""

    @property
    def may_hedge(self) -> bool:
        """Whether the local generator may be started as well, and has a free slot."""
        ...

    def on_first_chunk(self) -> None:
        """A first valid chunk came; it is emitted next."""
        ...

    def on_slow(self, reason: str) -> None:
        """The remote takes longer than usual."""
        ...

    def on_failed(self, remote: str, problem: str) -> None:
        """The stream failed; nothing more comes."""
        ...


class RemoteStream:
    """The stream of one answer.

    Args:
        context: What all hedged requests share.

    Raises on construction:
    """

    def __init__(
        self,
        context: OffloadContext,
        state: RemoteState,
        request: GenerationRequest,
        continuation: Continuation,
        observer: StreamObserver,
    ) -> None:
        self._context = context
        self._state = state
        self._request = request
        self._continuation = continuation
        self._observer = observer
        self._body, self._restorer = context.serialize(state, request, continuation.prompt)
        self._prompt_tokens = max(1, len(continuation.prompt.tokens))
        self._started = now = context.clock()
        self._timeout_s = None if request.deadline is None else max(0.001, request.deadline - now)
        self._estimate = state.estimate(self._prompt_tokens, request.sampling.max_tokens)
        self._first_chunk: float | None = None
        self._last_chunk: float | None = None
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._not_paused = asyncio.Event()
        self._not_paused.set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        name, passages = self._state.remote.name, len(self._continuation.prompt.passages)
        self._context.events.sent(self._request, name, self._body, passages, self._started)
        self._task = self._context.loop.loop.create_task(self._read())
        self._context.remotes.track(self._state, len(self._body), self._task)
        self._check_progress()

    def pause(self) -> None:
        """Stops reading until ``resume``."""
        self._not_paused.clear()
        self._cancel_timer()

    def resume(self) -> None:
        """Reads on; the time paused does not count against the remote."""
        if self._stopped or self._not_paused.is_set():
            return
        self._not_paused.set()
        if self._last_chunk is not None:
            self._last_chunk = self._context.clock()
        self._check_progress()

    def stop(self) -> None:
        """Cancels the call without calling the observer; idempotent."""
        if self._stopped:
            return
        self._stopped = True
        self._cancel_timer()
        if self._task is not None and self._task is not asyncio.current_task(self._context.loop.loop):
            self._task.cancel()

    def mark_failed(self, problem: str) -> None:
        self._context.remotes.record_failure(self._state, problem, busy=False)

    def expire(self) -> None:
        if self._stopped or not self._not_paused.is_set():
            return
        expected, timeout_s = self._estimate.finish_s, self._timeout_s
        if self._first_chunk is None if expected is None or timeout_s is None else expected <= timeout_s:
            self.mark_failed("the remote did not finish before the deadline")

    async def _read(self) -> None:
        stream = self._state.remote.send(self._body, self._timeout_s)
        try:
            async for event in stream:
                self._handle(event)
                # More events may be buffered, so that the loop never blocks: let a pause or an end take effect first.
                await asyncio.sleep(0)
                if self._stopped:
                    return
                await self._not_paused.wait()
            raise RemoteFailed("the remote ended the stream without a finish reason")
        except RemoteFailed as error:
            self._fail(str(error), error.busy)
        except Exception as error:  # noqa: BLE001 - no failure of a remote may end the answer
            self._fail(f"reading the remote's answer failed: {error!r}", busy=False)
        finally:
            await stream.aclose()

    def _handle(self, event: RemoteEvent) -> None:
        finished: RemoteFinished | None = None
        match event:
            case RemoteLoad():
                self._state.update_load(event)
                return
            case RemoteFinished():
                chunk, finished = self._restorer.flush(), event
            case _:
                chunk = self._restorer.restore(event)
        if chunk is not None:
            self._last_chunk = self._context.clock()
            if self._first_chunk is None:
                self._first_chunk = self._last_chunk
                self._observer.on_first_chunk()
            reason = self._continuation.append(chunk)
            if reason is not None and finished is None:
                finished = RemoteFinished(reason)
        if finished is not None:
            self._finish(finished)

    def _finish(self, finished: RemoteFinished) -> None:
        now, started = self._context.clock(), self._started
        queue_s = min(finished.queue_s, now - started)
        self._continuation.finish(finished.reason, finished.usage, queue_s, now - started - queue_s)
        first_s = (now if self._first_chunk is None else self._first_chunk) - started
        tokens = max(1, self._continuation.generated_tokens)
        sample = Sample(min(queue_s, first_s), first_s, now - started, self._prompt_tokens, tokens)
        self._state.latency.observe(sample)
        self._context.record_answer(self._state)
        self.stop()

    def _fail(self, problem: str, busy: bool) -> None:
        if self._stopped:
            return
        self.stop()
        self._context.remotes.record_failure(self._state, problem, busy)
        self._observer.on_failed(self._state.remote.name, problem)

    def _check_progress(self) -> None:
        """Applies the timeouts and schedules the next check."""
        assessment = self._assess()
        match assessment.action:
            case Action.TAKE_OVER:
                self._fail(assessment.reason, busy=False)
                return
            case Action.HEDGE:
                self._observer.on_slow(assessment.reason)
            case Action.WAIT:
                pass
        self._timer = self._context.call_at(assessment.check_at, self._check_progress)

    def _assess(self) -> Assessment:
        tokens, max_tokens = self._continuation.generated_tokens, self._request.sampling.max_tokens
        progress = StreamProgress(
            now=self._context.clock(),
            started=self._started,
            deadline=self._request.deadline,
            first_chunk=self._first_chunk,
            last_chunk=self._last_chunk,
            tokens=tokens,
            remaining=max(0, min(max_tokens, self._context.typical_tokens()) - tokens),
            remote=self._estimate,
            local=self._context.local_estimate(self._request, self._prompt_tokens),
            may_hedge=self._observer.may_hedge,
        )
        return assess(progress, self._context.timeouts)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
