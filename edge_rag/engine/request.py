"""A request inside the engine, its progress, and its drafts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from edge_rag.core.answer import FinishReason, Usage
from edge_rag.core.ids import RequestId
from edge_rag.core.monitoring.metrics import RequestReport
from edge_rag.core.query import Priority, Sampling
from edge_rag.engine.constraint import AllowedTokens, AnyToken, Constraint, Ended, Forced
from edge_rag.engine.drafter import Drafter, StepCost
from edge_rag.engine.ports import Outcome, TokenSink
from edge_rag.engine.sampler import Logits, SampleRequest, TokenSampler, sample
from edge_rag.engine.scheduling.plan import StepPlan
from edge_rag.engine.sequence import PassageSpan, Sequence, SequenceId, domain_key


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """The engine's input: token ids and how to continue them.

    Attributes:
        trust_domain: Cached pages are shared only inside one.
        deadline: On the engine's clock, seconds, or None.
        spans: Parts of the prompt that may be copied from texts where they were computed before; the answer is then an
            approximation.
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
    def total_tokens(self) -> int:
        return len(self.prompt) + self.sampling.max_tokens

    def sequence(self, sequence_id: SequenceId, now: float) -> Sequence:
        """Returns a new sequence of the prompt, without spans."""
        return Sequence(
            sequence_id,
            self.priority,
            domain_key(self.trust_domain, self.epoch),
            list(self.prompt),
            self.sampling.max_tokens,
            client=self.client,
            arrived=now,
            deadline=self.deadline,
        )


@dataclass(slots=True, eq=False)
class ActiveRequest:
    """A request that is not over.

    Attributes:
        submitted: Time of arrival, seconds on the engine's clock.
        drafter: Drafts tokens; None without speculative decoding.
        slot_since: Time it got its present slot, or None.
        slot_s: Time in slots before the present one, seconds.
        paused_since: Time it was paused for a slow consumer, or None.
    """

    request: TokenRequest
    sequence: Sequence
    sampler: TokenSampler
    constraint: Constraint
    sink: TokenSink
    submitted: float
    allowed: AllowedTokens = field(default_factory=AnyToken)
    drafter: Drafter | None = None
    started: float | None = None
    forced: int = 0
    slot_since: float | None = None
    slot_s: float = 0.0
    first_token_at: float | None = None
    last_token_at: float | None = None
    paused_since: float | None = None

    def got_slot(self, now: float) -> None:
        self.started = now if self.started is None else self.started
        self.slot_since = now if self.slot_since is None else self.slot_since

    def lost_slot(self, now: float) -> None:
        if self.slot_since is not None:
            self.slot_s += now - self.slot_since
        self.slot_since = None

    def emitted(self, now: float) -> float | None:
        """Records that tokens were emitted; returns the seconds since the previous ones, None for the first."""
        gap = None if self.last_token_at is None else now - self.last_token_at
        self.first_token_at = now if self.first_token_at is None else self.first_token_at
        self.last_token_at = now
        return gap

    def append(self, sampled: tuple[int, ...] = ()) -> FinishReason | None:
        """Appends sampled tokens and those that the constraint forces after them, and passes them to the sink.

        Returns:
            Why the answer is over, or None if the model chooses the next token.
        """
        run = list(sampled)
        self.constraint = self.constraint.after(sampled)
        left = self.sequence.max_tokens - self.sequence.generated
        while isinstance(following := self.constraint.next(), Forced) and len(run) < left:
            forced = following.tokens[: left - len(run)]
            run += forced
            self.forced += len(forced)
            self.constraint = self.constraint.after(forced)
        self.sequence.tokens += run
        self.sampler.observe(run)
        if run and self.sink.extend(tuple(run)):
            return FinishReason.STOP
        if isinstance(following, Ended):
            return following.reason
        if isinstance(following, Forced) or len(run) >= left:
            return FinishReason.LENGTH
        self.allowed = following
        return None

    def outcome(self, reason: FinishReason, now: float) -> Outcome:
        started = now if self.started is None else self.started
        usage = self._usage(self.sequence.prompt_tokens)
        return Outcome(reason, usage, queue_s=started - self.submitted, compute_s=now - started)

    def report(self, now: float, completed: bool) -> RequestReport:
        """Returns the cost of the request, at its end."""
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


class Speculation:
    """Drafts tokens where that is worth its cost, and samples the tokens of a step.

    Args:
        max_draft: Most tokens that a request drafts for a step; 0 for none.
    """

    def __init__(self, max_draft: int) -> None:
        self._max_draft = max_draft
        self._cost = StepCost()

    def drafter(self, request: TokenRequest) -> Drafter | None:
        """Returns a drafter for a request; None if nothing is drafted or the request does not begin with free text."""
        free = self._max_draft > 0 and isinstance(request.constraint.next(), AnyToken)
        return Drafter(request.prompt) if free else None

    def propose(self, running: Iterable[ActiveRequest]) -> None:
        """Drafts tokens for the running requests that sample a token in the next step."""
        if self._max_draft:
            decoding = [request for request in running if request.sequence.pending == 1]
            for request in decoding:
                self._propose_for(request, len(decoding))

    def sample(
        self, plan: StepPlan, active: Mapping[SequenceId, ActiveRequest], logits: Logits
    ) -> list[tuple[ActiveRequest, tuple[int, ...]]]:
        """Samples the tokens of a step: for each request the drafted tokens that are right, and one more.

        Args:
            logits: float32 [R, V], of the plan's tokens that want them, in order.
        """
        requests = [(active[entry.sequence], entry.drafted) for entry in plan.entries if entry.wants_logits]
        rows = [SampleRequest(r.sampler, r.allowed, r.sequence.draft[:drafted]) for r, drafted in requests]
        sampled = [(r, tokens) for (r, _), tokens in zip(requests, sample(logits, rows), strict=True)]
        for request, tokens in sampled:
            if request.drafter is not None:
                request.drafter.learn(tokens)
        return sampled

    def observe(self, plan: StepPlan, seconds: float) -> None:
        """Learns the cost of tokens from the time of a step."""
        if self._max_draft and plan.tokens == plan.decodes + plan.drafted:
            self._cost.observe(plan.tokens, seconds)

    def _propose_for(self, request: ActiveRequest, decoding: int) -> None:
        """Drafts tokens if the model's choice is free and the answer may become longer."""
        sequence = request.sequence
        sequence.draft = ()
        limit = min(self._max_draft, sequence.max_tokens - sequence.generated - 1)
        if request.drafter is not None and limit > 0 and isinstance(request.allowed, AnyToken):
            sequence.draft = request.drafter.draft(sequence.tokens, limit, decoding, self._cost)
