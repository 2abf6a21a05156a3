"""A request inside the engine: what was asked, and how far it is."""

from __future__ import annotations

from dataclasses import dataclass, field

from edge_rag.core.answer import FinishReason, Usage
from edge_rag.core.ids import RequestId
from edge_rag.core.monitoring.metrics import RequestReport
from edge_rag.core.query import Priority, Sampling
from edge_rag.engine.constraint import AnyToken, Constraint, Ended, Forced, ModelMove
from edge_rag.engine.kv_cache.page_copy import PassageSpan
from edge_rag.engine.ports import Outcome, TokenSink
from edge_rag.engine.sampler import Choice
from edge_rag.engine.sequence import Sequence
from edge_rag.engine.speculative.drafter import Drafter
from edge_rag.engine.speculative.step_cost import StepCost


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """What the engine is asked: tokens in, tokens out.

    Attributes:
        request_id: Identifies the request in the trail of decisions.
        prompt: Token ids.
        constraint: What may be said; ``FreeText`` for anything.
        sampling: How tokens are chosen.
        priority: Scheduling class.
        client: Who asks.
        trust_domain: Cached pages are shared only inside one.
        deadline: On the engine's clock, seconds, or None.
        spans: Parts of the prompt that may be copied from where they were computed alone; the answer is then an
            approximation.
        epoch: Of the trust domain; what is cached in one is not found in another.
    """

    request_id: RequestId
    prompt: tuple[int, ...]
    constraint: Constraint
    sampling: Sampling
    priority: Priority
    client: str
    trust_domain: str
    deadline: float | None
    epoch: int = 0
    spans: tuple[PassageSpan, ...] = ()

    @property
    def most_tokens(self) -> int:
        """What it may come to, prompt and answer together."""
        return len(self.prompt) + self.sampling.max_tokens


@dataclass(slots=True, eq=False)
class ActiveRequest:
    """A request on its way.

    Attributes:
        request: What was asked.
        sequence: Its tokens.
        choice: How its tokens are chosen.
        constraint: What may be said next.
        move: The constraint's answer to that, where the model has a choice.
        drafter: Drafts what it may say; None where nothing is drafted.
        sink: Where its tokens go.
        submitted: When it came, seconds on the engine's clock.
        started: When it first got a slot, or None.
        forced: Tokens the constraint left no choice about.
        slot_since: Since when it has the slot it has, or None.
        slot_s: Time in slots it had before, seconds.
        first_said: When its first token came, or None.
        last_said: When its latest token came, or None.
        paused_since: Since when its reader is waited for, or None.
    """

    request: TokenRequest
    sequence: Sequence
    choice: Choice
    constraint: Constraint
    sink: TokenSink
    submitted: float
    move: ModelMove = field(default_factory=AnyToken)
    drafter: Drafter | None = None
    started: float | None = None
    forced: int = 0
    slot_since: float | None = None
    slot_s: float = 0.0
    first_token_at: float | None = None
    last_token_at: float | None = None
    paused_since: float | None = None

    def took_slot(self, now: float) -> None:
        """Notes that it has a slot from now on."""
        self.started = now if self.started is None else self.started
        self.slot_since = now if self.slot_since is None else self.slot_since

    def lost_slot(self, now: float) -> None:
        """Notes that it has no slot from now on."""
        if self.slot_since is not None:
            self.slot_s += now - self.slot_since
        self.slot_since = None

    def emitted(self, now: float) -> float | None:
        """Notes that tokens came; returns the seconds since the ones before, or None if these were the first."""
        gap = None if self.last_token_at is None else now - self.last_token_at
        self.first_token_at = now if self.first_token_at is None else self.first_token_at
        self.last_token_at = now
        return gap

    def draft(self, most: int, sequences: int, cost: StepCost) -> None:
        """Drafts what the next step may check, where it is the model's free choice and the answer has room.

        Args:
            most: Most tokens.
            sequences: Sequences that say a token in the next step.
            cost: What tokens cost.
        """
        sequence = self.sequence
        sequence.draft = ()
        most = min(most, sequence.max_tokens - sequence.generated - 1)
        if self.drafter is not None and most > 0 and sequence.pending == 1 and isinstance(self.move, AnyToken):
            sequence.draft = self.drafter.draft(sequence.tokens, most, sequences, cost)

    def append(self, chosen: tuple[int, ...] = ()) -> FinishReason | None:
        """Appends chosen tokens and whatever the constraint forces after them, and reports them.

        Returns:
            Why the answer is over, or None if the model is to be asked on.
        """
        run = list(chosen)
        self.constraint = self.constraint.after(chosen)
        room = self.sequence.max_tokens - self.sequence.generated
        while isinstance(move := self.constraint.next(), Forced) and len(run) < room:
            forced = move.tokens[: room - len(run)]
            run += forced
            self.forced += len(forced)
            self.constraint = self.constraint.after(forced)
        self.sequence.tokens += run
        self.choice.observe(run)
        if run and self.sink.extend(tuple(run)):
            return FinishReason.STOP
        if isinstance(move, Ended):
            return move.reason
        if isinstance(move, Forced) or len(run) >= room:
            return FinishReason.LENGTH
        self.move = move
        return None

    def outcome(self, reason: FinishReason, now: float) -> Outcome:
        """Sums the request up at its end."""
        started = now if self.started is None else self.started
        usage = self._usage(self.sequence.prompt_tokens)
        return Outcome(reason, usage, queue_s=started - self.submitted, compute_s=now - started)

    def report(self, now: float, completed: bool) -> RequestReport:
        """Sums up what the request cost, at its end."""
        started = now if self.started is None else self.started
        since = now if self.slot_since is None else self.slot_since
        return RequestReport(
            client=self.request.client,
            usage=self._usage(self.sequence.prompt_tokens if self.sequence.steps else 0),
            queue_s=started - self.submitted,
            slot_s=self.slot_s + now - since,
            first_token_s=None if self.first_token_at is None else self.first_token_at - self.submitted,
            last_token_s=None if self.last_token_at is None else self.last_token_at - self.submitted,
            completed=completed,
        )

    def _usage(self, prompt_tokens: int) -> Usage:
        return Usage(
            prompt_tokens=prompt_tokens,
            cached_prompt_tokens=min(self.sequence.cached_tokens, prompt_tokens),
            copied_prompt_tokens=min(self.sequence.copied_tokens, prompt_tokens),
            generated_tokens=self.sequence.generated,
            forced_tokens=self.forced,
            model_steps=self.sequence.steps,
        )
