"""One answer on its way, with a remote, with this box, or with both: whoever speaks first goes on, and the client hears
one answer whatever happens.

    REMOTE   said is checked and told ── fails, stalls, lies ──> this box goes on from there
    LOCAL    the generator here tells ── straggles ────────────> a remote is begun as well
    BOTH     the first to speak leads, and the other is given up

Everything here happens on the room's event loop; events of the generator here are handed over to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from edge_rag.core.generation import Generated, GenerationEvent, GenerationFailed, GenerationRequest
from edge_rag.errors import DeadlineExceeded, EdgeRagError, NotReady, Overloaded, RemoteFailed, Unread
from edge_rag.offload.desk import RemoteDesk, kind_of
from edge_rag.offload.meter import Outlook, Sample
from edge_rag.offload.order import Homecoming
from edge_rag.offload.patience import SAFETY, SOONEST_HEDGE_S, UNKNOWN_SHARE, Progress, Step, look
from edge_rag.offload.policy import Choice, Place
from edge_rag.offload.ports import Busy, Dictation, Ended, Handle, Heard, Listener
from edge_rag.offload.tower import Tower


class Flight:
    """An answer on its way. Made on the caller's thread, from then on the event loop's.

    Args:
        tower: What all flights share.
        request: What is asked.
        listener: Hears the answer, on the event loop's thread.
        choice: Where it is written.
        prompt_tokens: Length of its prompt, as estimated.
        landed: Told once when it is over.
    """

    def __init__(
        self,
        tower: Tower,
        request: GenerationRequest,
        listener: Listener,
        choice: Choice,
        prompt_tokens: int,
        landed: Callable[[Flight], None],
    ) -> None:
        self._tower = tower
        self._request = request
        self._listener = listener
        self._choice = choice
        self._prompt_tokens = prompt_tokens
        self._landed = landed
        self._started = tower.clock()
        self._over = False
        self._local: Handle | None = None
        self._local_leads = False
        self._hedged = False
        self._dictation: Dictation | None = None
        self._homecoming: Homecoming | None = None
        self._desk: RemoteDesk | None = None
        self._reading: asyncio.Task[None] | None = None
        self._remote_leads = False
        self._remote_started = 0.0
        self._first_text: float | None = None
        self._last_text: float | None = None
        self._expected: Outlook = Outlook()
        self._rest: Callable[[], None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._next: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._held: list[GenerationEvent] = []

    def prepare(self) -> None:
        """Hands it to this box, or readies it for a remote; on the caller's thread, so that it hears refusals.

        Raises:
            EdgeRagError: It is not admitted.
        """
        if self._choice.place is not Place.LOCAL:
            self._dictation = self._tower.local.dictation(self._request, self._hear_dictated)
        if self._dictation is None:
            self._local = self._tower.local.submit(self._request, self._hear_local)
        elif self._choice.place is Place.BOTH:
            with suppress(Overloaded):  # then the remote runs alone
                self._local = self._tower.local.submit(self._request, self._hear_local)

    def take_off(self) -> None:
        """Begins; on the event loop."""
        if self._over:
            return
        if self._request.deadline is not None:
            self._deadline = self._at(self._request.deadline, lambda: self._fail(DeadlineExceeded("generator")))
        if self._local_leads:
            return
        if self._dictation is not None:
            self._ask_next(self._choice.remotes)
        elif self._choice.remotes:
            self._next = self._at(self._started + self._local_patience(), self._hedge_elsewhere)

    def pause(self) -> None:
        """Has whoever writes wait for the reader; on the event loop. What is on its way nevertheless is held."""
        if self._over or self._unread is not None:
            return
        longest_s = self._tower.bounds.unread_s
        self._unread = self._tower.loop.call_later(longest_s, lambda: self._fail(Unread(longest_s)))
        self._may_read.clear()
        if self._local is not None:
            self._local.pause()

    def resume(self) -> None:
        """Lets it go on; on the event loop."""
        if self._over or self._unread is None:
            return
        self._unread.cancel()
        self._unread = None
        self._may_read.set()
        if self._local is not None:
            self._local.resume()
        held, self._held = self._held, []
        for event in held:
            self._tell(event)
        if self._last_text is not None:
            self._last_text = self._tower.clock()
        if self._reading is not None:
            if self._next is not None:
                self._next.cancel()
            self._look_again()

    def give_up(self, error: EdgeRagError) -> None:
        """Ends it badly; on the event loop."""
        self._fail(error)

    # this box

    def _hear_local(self, event: GenerationEvent) -> None:
        """Takes an event of the generator here; its thread."""
        self._tower.post(lambda: self._take_local(event))

    def _take_local(self, event: GenerationEvent) -> None:
        if self._over or self._remote_leads:
            return
        if isinstance(event, GenerationFailed):
            self._local = None
            if self._reading is None or self._local_leads:
                self._tell(event)
            return
        if not self._local_leads:
            self._local_leads = True
            if self._hedged and self._desk is not None and self._reading is not None:
                self._tower.went_wrong(self._desk, "this box was asked later and spoke first", busy=False)
            self._drop_remote()
        if isinstance(event, Generated):
            self._tower.measure_local(self._request, event)
        self._tell(event)

    def _local_patience(self) -> float:
        """Returns how long this box is waited for before a remote is begun as well, seconds.

        As long as is usual here and more; with a deadline, until a remote would need the time that is left.
        """
        unusual = self._tower.local_outlook(self._request, self._prompt_tokens).unusual_s
        patience = max(SOONEST_HEDGE_S, self._tower.bounds.first_text_s if unusual is None else unusual)
        if self._request.deadline is None:
            return patience
        window = self._request.deadline - self._started
        desk = self._tower.desks[self._choice.remotes[0]]
        most = self._request.sampling.max_tokens
        there = desk.outlook(kind_of(self._request.mode), self._prompt_tokens, most).finish_s
        latest = UNKNOWN_SHARE * window if there is None else window - SAFETY * there
        return max(0.0, latest) if unusual is None else max(patience, latest)

    def _hedge_elsewhere(self) -> None:
        if self._local_leads or self._over or self._local is None:
            return
        try:
            self._dictation = self._tower.local.dictation(self._request, self._hear_dictated)
        except EdgeRagError:
            return
        if self._dictation is not None:
            now = self._tower.clock()
            waited = now - self._started
            self._tower.announcer.hedged(self._request, "elsewhere", "it takes long here", waited, now)
            self._ask_next(self._choice.remotes)

    # a remote

    def _ask_next(self, names: tuple[str, ...]) -> None:
        """Asks the first remote that is let through; goes on here where there is none any more."""
        now = self._tower.clock()
        for name in names:
            desk = self._tower.desks[name]
            if desk.breaker.lets_through(now):
                self._ask(desk)
                return
        if self._local is None:
            self._go_on("no remote is let through any more", names[0] if names else "a remote")

    def _ask(self, desk: RemoteDesk) -> None:
        dictation = self._dictation
        assert dictation is not None
        now = self._tower.clock()
        try:
            sealed, self._homecoming = self._tower.seal(desk, self._request, dictation.prompt)
        except EdgeRagError as error:
            self._go_on(str(error), desk.remote.name)
            return
        self._desk, self._remote_started = desk, now
        prompt_tokens, most = len(dictation.prompt.tokens), self._request.sampling.max_tokens
        self._expected = desk.outlook(kind_of(self._request.mode), prompt_tokens, most)
        passages = len(dictation.prompt.passages)
        self._tower.announcer.sent(self._request, desk.remote.name, sealed, passages, now)
        within = None if self._request.deadline is None else max(0.001, self._request.deadline - now)
        self._reading = self._tower.loop.create_task(self._read(desk, sealed, within))
        self._tower.sending(desk, len(sealed), self._reading)
        self._look_again()

    async def _read(self, desk: RemoteDesk, sealed: bytes, within_s: float | None) -> None:
        answer = desk.remote.send(sealed, within_s)
        try:
            async for heard in answer:
                self._take_remote(desk, heard)
                if self._over or self._reading is not asyncio.current_task():
                    return
                await self._may_read.wait()
            raise RemoteFailed("it stopped without an end")
        except RemoteFailed as error:
            if self._reading is asyncio.current_task():
                self._remote_failed(desk, str(error), error.busy)
        except Exception as error:  # noqa: BLE001 - whatever a remote brings about, the answer goes on
            if self._reading is asyncio.current_task():
                self._remote_failed(desk, f"reading its answer failed: {error!r}", busy=False)
        finally:
            await answer.aclose()

    def _take_remote(self, desk: RemoteDesk, heard: Heard) -> None:
        dictation, homecoming = self._dictation, self._homecoming
        assert dictation is not None
        assert homecoming is not None
        ended: Ended | None = None
        match heard:
            case Busy():
                desk.hear(heard)
                return
            case Ended():
                said, ended = homecoming.rest(), heard
            case _:
                said = homecoming.welcome(heard)
        if said is not None:
            self._remote_speaks()
            reason = dictation.say(said)
            if reason is not None and ended is None:
                ended = Ended(reason)
        if ended is None:
            return
        now = self._tower.clock()
        queue_s = min(ended.queue_s, now - self._remote_started)
        usage = None if ended.usage is None or not ended.usage.generated_tokens else ended.usage
        dictation.finish(ended.reason, usage, queue_s, now - self._remote_started - queue_s)
        self._remote_done(desk, queue_s, now)

    def _remote_speaks(self) -> None:
        """Something came: it leads from now on."""
        now = self._tower.clock()
        self._last_text = now
        if self._first_text is None:
            self._first_text = now
        if not self._remote_leads:
            self._remote_leads = True
            if self._local is not None:
                self._local.cancel()
                self._local = None

    def _remote_done(self, desk: RemoteDesk, queue_s: float, now: float) -> None:
        dictation, started = self._dictation, self._remote_started
        assert dictation is not None
        first = now if self._first_text is None else self._first_text
        prompt, said = max(1, len(dictation.prompt.tokens)), max(1, dictation.said_tokens)
        sample = Sample(min(queue_s, first - started), first - started, now - started, prompt, said)
        desk.meters[kind_of(self._request.mode)].observe(sample)
        self._tower.went_well(desk)

    def _remote_failed(self, desk: RemoteDesk, problem: str, busy: bool) -> None:
        self._drop_remote()
        self._tower.went_wrong(desk, problem, busy)
        if self._over or self._local_leads:
            return
        if self._local is not None and not self._remote_leads:
            return
        self._go_on(problem, desk.remote.name)

    def _go_on(self, problem: str, remote: str) -> None:
        """Has this box write what is left."""
        dictation, now = self._dictation, self._tower.clock()
        assert dictation is not None
        given = {"said_tokens": float(dictation.said_tokens), "after_s": now - self._started}
        self._tower.announcer.taken_over(self._request, remote, problem, given, now)
        self._remote_leads = True
        try:
            self._rest = dictation.go_on()
        except NotReady as error:
            self._begin_anew(dictation, error)
        except EdgeRagError as error:
            self._fail(error)

    def _begin_anew(self, dictation: Dictation, error: NotReady) -> None:
        """Asks the generator that took the place of the one the answer was begun for, if nothing was told yet."""
        if dictation.said_tokens:
            self._fail(error)
            return
        self._remote_leads = False
        try:
            self._local = self._tower.local.submit(self._request, self._hear_local)
        except EdgeRagError as refused:
            self._fail(refused)

    def _look_again(self) -> None:
        """Decides whether the remote is still waited for, and when to look next."""
        desk, dictation = self._desk, self._dictation
        if self._over or self._unread is not None or self._reading is None or desk is None or dictation is None:
            return
        now, most = self._tower.clock(), self._request.sampling.max_tokens
        progress = Progress(
            now=now,
            started=self._remote_started,
            deadline=self._request.deadline,
            first_text=self._first_text,
            last_text=self._last_text,
            said=dictation.said_tokens,
            left=max(0, min(most, self._tower.usual_tokens(self._request)) - dictation.said_tokens),
            remote=self._expected,
            local=self._tower.local_outlook(self._request, len(dictation.prompt.tokens)),
            may_hedge=self._local is None and self._tower.has_free_slot(),
        )
        seen = look(progress, self._tower.bounds)
        match seen.step:
            case Step.TAKE_OVER:
                self._remote_failed(desk, seen.reason, busy=False)
                return
            case Step.HEDGE:
                self._hedge_here(seen.reason, now)
            case Step.WAIT:
                pass
        self._next = self._at(seen.again_at, self._look_again)

    def _hedge_here(self, reason: str, now: float) -> None:
        try:
            self._local = self._tower.local.submit(self._request, self._hear_local)
        except EdgeRagError:
            return  # there is no room here for a second start; the remote is waited for as long as it may take
        self._hedged = True
        self._tower.announcer.hedged(self._request, "here", reason, now - self._started, now)

    def _drop_remote(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None and reading is not asyncio.current_task(self._tower.loop):
            reading.cancel()

    # the listener

    def _hear_dictated(self, event: GenerationEvent) -> None:
        """Takes an event of the answer that is dictated; the loop's thread, or the generator's once it goes on."""
        if self._tower.is_loop_thread():
            self._tell(event)
        else:
            self._tower.post(lambda: self._tell(event))

    def _fail(self, error: EdgeRagError) -> None:
        self._tell(GenerationFailed(error))

    def _tell(self, event: GenerationEvent) -> None:
        if self._over:
            return
        if self._unread is not None and not isinstance(event, GenerationFailed):
            self._held.append(event)
            return
        if isinstance(event, Generated | GenerationFailed):
            self._over = True
            self._drop_remote()
            if self._local is not None:
                self._local.cancel(event.error if isinstance(event, GenerationFailed) else None)
            if self._rest is not None:
                self._rest()
            for timer in (self._deadline, self._next, self._unread):
                if timer is not None:
                    timer.cancel()
            self._landed(self)
        self._listener(event)

    def _at(self, when: float, what: Callable[[], None]) -> asyncio.TimerHandle:
        """Does something at a time on the tower's clock."""
        return self._tower.loop.call_later(max(0.0, when - self._tower.clock()), what)
