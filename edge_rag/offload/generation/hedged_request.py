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

from edge_rag.core.answer import Usage
from edge_rag.core.generation import Generated, GenerationEvent, GenerationFailed, GenerationRequest
from edge_rag.errors import DeadlineExceeded, EdgeRagError, NotReady, Overloaded, SlowConsumer
from edge_rag.offload.context import OffloadContext
from edge_rag.offload.generation.remote_stream import RemoteAnswer
from edge_rag.offload.generation.routing import Choice, Place
from edge_rag.offload.generation.timeouts import SAFETY, SOONEST_HEDGE_S, UNKNOWN_SHARE
from edge_rag.offload.ports import Continuation, Handle, Listener
from edge_rag.offload.remotes.remote_state import RemoteState, kind_of


class HedgedRequest:
    """An answer on its way. Made on the caller's thread, from then on the event loop's. Follows its ``RemoteAnswer``.

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
        tower: OffloadContext,
        request: GenerationRequest,
        listener: Listener,
        choice: Choice,
        prompt_tokens: int,
        landed: Callable[[HedgedRequest], None],
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
        self._begun_here = False
        self._local_leads = False
        self._hedged = False
        self._dictation: Continuation | None = None
        self._remote: RemoteAnswer | None = None
        self._remote_leads = False
        self._rest: Callable[[], None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._hedge: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._held: list[GenerationEvent] = []

    def prepare(self) -> None:
        """Hands it to this box, or readies it for a remote; on the caller's thread, so that it hears refusals.

        Raises:
            EdgeRagError: It is not admitted.
        """
        if self._choice.place is not Place.LOCAL:
            self._dictation = self._tower.local.dictation(self._request, self._hear_dictated)
        if self._dictation is None:
            self._begin_here()
        elif self._choice.place is Place.BOTH:
            try:
                with suppress(Overloaded):  # then the remote runs alone
                    self._begin_here()
            except BaseException:
                self._dictation.close()
                raise

    def take_off(self) -> None:
        """Begins; on the event loop."""
        if self._over:
            return
        if self._request.deadline is not None:
            self._deadline = self._tower.at(self._request.deadline, self._expire)
        if self._local_leads:
            return
        if self._dictation is not None:
            self._ask_next(self._choice.remotes)
        elif self._choice.remotes:
            self._hedge = self._tower.at(self._started + self._local_patience(), self._hedge_elsewhere)

    def pause(self) -> None:
        """Has whoever writes wait for the reader; on the event loop. What is on its way nevertheless is held."""
        if self._over or self._unread is not None:
            return
        longest_s = self._tower.bounds.unread_s
        self._unread = self._tower.loop.call_later(longest_s, lambda: self._fail(SlowConsumer(longest_s)))
        if self._remote is not None:
            self._remote.pause()
        if self._local is not None:
            self._local.pause()

    def resume(self) -> None:
        """Lets it go on; on the event loop."""
        if self._over or self._unread is None:
            return
        self._unread.cancel()
        self._unread = None
        if self._remote is not None:
            self._remote.resume()
        if self._local is not None:
            self._local.resume()
        held, self._held = self._held, []
        for event in held:
            self._tell(event)

    def give_up(self, error: EdgeRagError) -> None:
        """Ends it badly; on the event loop."""
        self._fail(error)

    # this box

    def _begin_here(self) -> None:
        self._local = self._tower.local.submit(self._request, self._hear_local)
        self._begun_here = True

    def _hear_local(self, event: GenerationEvent) -> None:
        """Takes an event of the generator here; its thread."""
        self._tower.post(lambda: self._take_local(event))

    def _take_local(self, event: GenerationEvent) -> None:
        if self._over or self._remote_leads:
            return
        if isinstance(event, GenerationFailed):
            self._local = None
            if self._remote is None or self._local_leads:
                self._tell(event)
            return
        if not self._local_leads:
            self._local_leads = True
            if self._hedged and self._remote is not None:
                self._remote.blame("this box was asked later and spoke first")
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

    def _ask(self, desk: RemoteState) -> None:
        assert self._dictation is not None
        try:
            self._remote = RemoteAnswer(self._tower, desk, self._request, self._dictation, self)
        except EdgeRagError as error:
            self._go_on(str(error), desk.remote.name)
            return
        self._remote.start()
        if self._unread is not None and self._remote is not None:
            self._remote.pause()

    @property
    def may_hedge(self) -> bool:
        """Whether this box may begin as well, and has room for it; see ``Follower``."""
        return self._local is None and self._tower.has_free_slot()

    def spoken(self) -> None:
        """The remote speaks, so it leads from now on."""
        self._remote_leads = True
        if self._local is not None:
            self._local.cancel()
            self._local = None

    def straggling(self, reason: str) -> None:
        """Begins here as well."""
        try:
            self._begin_here()
        except EdgeRagError:
            return  # there is no room here for a second start; the remote is waited for as long as it may take
        self._hedged = True
        now = self._tower.clock()
        self._tower.announcer.hedged(self._request, "here", reason, now - self._started, now)

    def failed(self, remote: str, problem: str) -> None:
        """Goes on here, unless this box is at it already."""
        self._remote = None
        if self._over or self._local_leads or (self._local is not None and not self._remote_leads):
            return
        self._go_on(problem, remote)

    def _go_on(self, problem: str, remote: str) -> None:
        """Has this box write what is left."""
        dictation, now = self._dictation, self._tower.clock()
        assert dictation is not None
        given = {"said_tokens": float(dictation.said_tokens), "after_s": now - self._started}
        self._tower.announcer.taken_over(self._request, remote, problem, given, now)
        self._remote_leads = True
        try:
            self._rest = dictation.go_on()
            self._begun_here = True
        except NotReady as error:
            self._begin_anew(dictation, error)
        except EdgeRagError as error:
            self._fail(error)

    def _begin_anew(self, dictation: Continuation, error: NotReady) -> None:
        """Asks the generator that took the place of the one the answer was begun for, if nothing was told yet."""
        if dictation.said_tokens:
            self._fail(error)
            return
        self._remote_leads = False
        try:
            self._begin_here()
        except EdgeRagError as refused:
            self._fail(refused)

    def _drop_remote(self) -> None:
        if self._remote is not None:
            self._remote.stop()
            self._remote = None

    # the listener

    def _hear_dictated(self, event: GenerationEvent) -> None:
        """Takes an event of the answer that is dictated; the loop's thread, or the generator's once it goes on."""
        if self._tower.is_loop_thread():
            self._tell(event)
        else:
            self._tower.post(lambda: self._tell(event))

    def _expire(self) -> None:
        if self._remote is not None:
            self._remote.expire()
        self._fail(DeadlineExceeded("generator"))

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
            for timer in (self._deadline, self._hedge, self._unread):
                if timer is not None:
                    timer.cancel()
            self._close_dictation()
            self._landed(self)
        self._listener(event)

    def _close_dictation(self) -> None:
        """Says what others wrote; what was begun here, the generator here accounts for."""
        if self._dictation is None:
            return
        said, prompt = self._dictation.said_tokens, len(self._dictation.prompt.tokens)
        alone = not self._begun_here
        usage = Usage(prompt_tokens=prompt if alone and said else 0, generated_tokens=said)
        self._tower.books.written_elsewhere(self._request.client, usage, alone)
        self._dictation.close()
