"""Speculative decoding: drafts before a step, and verification of them while the step's tokens are sampled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from edge_rag.engine.constraint import AnyToken
from edge_rag.engine.request import ActiveRequest, TokenRequest
from edge_rag.engine.sampler import Logits, SampleRequest, sample
from edge_rag.engine.scheduling.plan import StepPlan
from edge_rag.engine.sequence import SequenceId
from edge_rag.engine.speculative.drafter import Drafter, StepCost


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
