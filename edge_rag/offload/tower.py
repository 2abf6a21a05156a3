"""What all flights share: this box's generator, and what is known of it and of the remotes."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping

from edge_rag.core.generation import Generated, GenerationRequest
from edge_rag.core.offload import OffloadRule, OffloadUse
from edge_rag.offload.context import Dispatch
from edge_rag.offload.events import OffloadAnnouncer
from edge_rag.offload.generation.redaction import Redactor
from edge_rag.offload.generation.request_builder import Homecoming, PromptText, release
from edge_rag.offload.generation.timeouts import Bounds
from edge_rag.offload.ports import Books, LocalGenerator
from edge_rag.offload.remotes.latency_model import Meter, Outlook, Sample
from edge_rag.offload.remotes.remote_state import Kind, RemoteDesk, kind_of

_USUAL_TOKENS = 128
"""How long an answer is taken to be until one was measured."""


class Tower(Dispatch):
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
        desks: Mapping[str, RemoteDesk],
        bounds: Bounds,
        redactor: Redactor,
        announcer: OffloadAnnouncer,
        books: Books,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(desks, announcer, clock)
        self.local = local
        self.bounds = bounds
        self.books = books
        self._redactor = redactor
        self._salt = secrets.token_bytes(16)
        self._meters = {kind: Meter() for kind in Kind}

    def at(self, when: float, what: Callable[[], None]) -> asyncio.TimerHandle:
        """Does something at a time on its clock; on the event loop."""
        return self.loop.call_later(max(0.0, when - self.clock()), what)

    @property
    def can_redact(self) -> bool:
        """Whether there are patterns to redact by."""
        return bool(self._redactor)

    def seal(self, desk: RemoteDesk, request: GenerationRequest, prompt: PromptText) -> tuple[bytes, Homecoming]:
        """Returns exactly what a remote is sent, and what makes sense of what comes back.

        Raises:
            PermissionDenied: Nothing of the collection may leave.
        """
        order, homecoming = release(request, prompt, self.local.vocabulary, self._salt, self._redactor)
        return desk.remote.seal(order), homecoming

    def went_well(self, desk: RemoteDesk) -> None:
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

    def local_outlook(self, request: GenerationRequest, prompt_tokens: int) -> Outlook:
        """Returns what is expected here of a request that came now."""
        busy = self.local.snapshot()
        meter = self._meters[kind_of(request.mode)]
        return meter.outlook(
            prompt_tokens, request.sampling.max_tokens, busy.running + busy.waiting, max(1, busy.slots)
        )

    def has_free_slot(self) -> bool:
        """Whether a request that came now would not wait here."""
        busy = self.local.snapshot()
        return busy.waiting == 0 and busy.running < busy.slots

    def usual_tokens(self, request: GenerationRequest) -> int:
        """Returns how long an answer of its kind mostly is, tokens."""
        kind = kind_of(request.mode)
        known = [meter.tokens for meter in (self._meters[kind], *(desk.meters[kind] for desk in self.desks.values()))]
        return round(max((tokens for tokens in known if tokens is not None), default=_USUAL_TOKENS))

    def able(self, desk: RemoteDesk, request: GenerationRequest) -> bool:
        """Whether a remote can write such an answer."""
        redacted = request.offload is OffloadRule.REDACTED
        return OffloadUse.GENERATE in desk.remote.uses and desk.remote.able(request.mode, request.format, redacted)
