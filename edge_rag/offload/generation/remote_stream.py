"""An answer that a remote is writing: read, checked, told, and watched for how long it takes.

Everything here happens on the room's event loop.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from edge_rag.core.generation import GenerationRequest
from edge_rag.errors import RemoteFailed
from edge_rag.offload.context import OffloadContext
from edge_rag.offload.generation.timeouts import Look, Progress, Step, look
from edge_rag.offload.ports import Busy, Continuation, Ended, Heard
from edge_rag.offload.remotes.latency_model import Sample
from edge_rag.offload.remotes.remote_state import RemoteState, kind_of


class Follower(Protocol):
    """Who wants to know how a remote's answer goes. Its end is told by the dictation."""

    @property
    def may_hedge(self) -> bool:
        """Whether this box may begin the answer as well, and has room for it."""
        ...

    def spoken(self) -> None:
        """Something came that may be said; it is told next."""
        ...

    def straggling(self, reason: str) -> None:
        """It takes longer than usual."""
        ...

    def failed(self, remote: str, problem: str) -> None:
        """Nothing more comes of it."""
        ...


class RemoteAnswer:
    """A remote's answer on its way.

    Args:
        tower: What all flights share.
        desk: The remote.
        request: What is asked.
        dictation: Where the answer goes.
        follower: Who wants to know.

    Raises on making:
        PermissionDenied: Nothing of the collection may leave; nothing was sent.
    """

    def __init__(
        self,
        tower: OffloadContext,
        desk: RemoteState,
        request: GenerationRequest,
        dictation: Continuation,
        follower: Follower,
    ) -> None:
        self._tower = tower
        self._desk = desk
        self._request = request
        self._dictation = dictation
        self._follower = follower
        self._sealed, self._homecoming = tower.seal(desk, request, dictation.prompt)
        self._prompt_tokens = max(1, len(dictation.prompt.tokens))
        self._started = now = tower.clock()
        self._within_s = None if request.deadline is None else max(0.001, request.deadline - now)
        self._expected = desk.outlook(kind_of(request.mode), self._prompt_tokens, request.sampling.max_tokens)
        self._first_text: float | None = None
        self._last_text: float | None = None
        self._stopped = False
        self._next: asyncio.TimerHandle | None = None
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._reading: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Sends the request."""
        name, passages = self._desk.remote.name, len(self._dictation.prompt.passages)
        self._tower.announcer.sent(self._request, name, self._sealed, passages, self._started)
        self._reading = self._tower.loop.create_task(self._read())
        self._tower.sending(self._desk, len(self._sealed), self._reading)
        self._look_again()

    def pause(self) -> None:
        """Reads no further until ``resume``."""
        self._may_read.clear()
        self._look_no_more()

    def resume(self) -> None:
        """Reads on; what the reader took is not held against the remote."""
        if self._stopped or self._may_read.is_set():
            return
        self._may_read.set()
        if self._last_text is not None:
            self._last_text = self._tower.clock()
        self._look_again()

    def stop(self) -> None:
        """Lets it go; nothing is told of it any more. Idempotent."""
        if self._stopped:
            return
        self._stopped = True
        self._look_no_more()
        if self._reading is not None and self._reading is not asyncio.current_task(self._tower.loop):
            self._reading.cancel()

    def blame(self, problem: str) -> None:
        """Holds against the remote that it was not there in time."""
        self._tower.went_wrong(self._desk, problem, busy=False)

    def expire(self) -> None:
        """The deadline has passed; that is held against a remote that could have been expected to be in time."""
        if self._stopped or not self._may_read.is_set():
            return
        expected, within_s = self._expected.finish_s, self._within_s
        if self._first_text is None if expected is None or within_s is None else expected <= within_s:
            self.blame("it was not done by the deadline")

    async def _read(self) -> None:
        answer = self._desk.remote.send(self._sealed, self._within_s)
        try:
            async for heard in answer:
                self._take(heard)
                # What came while the reader took this is at hand without waiting: a pause or an end comes before it.
                await asyncio.sleep(0)
                if self._stopped:
                    return
                await self._may_read.wait()
            raise RemoteFailed("it stopped without an end")
        except RemoteFailed as error:
            self._fail(str(error), error.busy)
        except Exception as error:  # noqa: BLE001 - whatever a remote brings about, the answer goes on
            self._fail(f"reading its answer failed: {error!r}", busy=False)
        finally:
            await answer.aclose()

    def _take(self, heard: Heard) -> None:
        ended: Ended | None = None
        match heard:
            case Busy():
                self._desk.hear(heard)
                return
            case Ended():
                said, ended = self._homecoming.rest(), heard
            case _:
                said = self._homecoming.welcome(heard)
        if said is not None:
            self._last_text = self._tower.clock()
            if self._first_text is None:
                self._first_text = self._last_text
                self._follower.spoken()
            reason = self._dictation.say(said)
            if reason is not None and ended is None:
                ended = Ended(reason)
        if ended is not None:
            self._end(ended)

    def _end(self, ended: Ended) -> None:
        now, started = self._tower.clock(), self._started
        queue_s = min(ended.queue_s, now - started)
        self._dictation.finish(ended.reason, ended.usage, queue_s, now - started - queue_s)
        first_s = (now if self._first_text is None else self._first_text) - started
        said = max(1, self._dictation.said_tokens)
        sample = Sample(min(queue_s, first_s), first_s, now - started, self._prompt_tokens, said)
        self._desk.meters[kind_of(self._request.mode)].observe(sample)
        self._tower.went_well(self._desk)
        self.stop()

    def _fail(self, problem: str, busy: bool) -> None:
        if self._stopped:
            return
        self.stop()
        self._tower.went_wrong(self._desk, problem, busy)
        self._follower.failed(self._desk.remote.name, problem)

    def _look_again(self) -> None:
        """Decides whether it is still waited for, and when to look next."""
        seen = self._look()
        match seen.step:
            case Step.TAKE_OVER:
                self._fail(seen.reason, busy=False)
                return
            case Step.HEDGE:
                self._follower.straggling(seen.reason)
            case Step.WAIT:
                pass
        self._next = self._tower.at(seen.again_at, self._look_again)

    def _look(self) -> Look:
        said, most = self._dictation.said_tokens, self._request.sampling.max_tokens
        progress = Progress(
            now=self._tower.clock(),
            started=self._started,
            deadline=self._request.deadline,
            first_text=self._first_text,
            last_text=self._last_text,
            said=said,
            left=max(0, min(most, self._tower.usual_tokens(self._request)) - said),
            remote=self._expected,
            local=self._tower.local_outlook(self._request, self._prompt_tokens),
            may_hedge=self._follower.may_hedge,
        )
        return look(progress, self._tower.bounds)

    def _look_no_more(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None
