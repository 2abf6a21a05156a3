"""Several tokens a step where the text copies: drafts before the step, and after it what of them is said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from edge_rag.engine.constraint import AnyToken
from edge_rag.engine.request import ActiveRequest, TokenRequest
from edge_rag.engine.sampler import Asked, Logits, choose
from edge_rag.engine.scheduling.plan import StepPlan
from edge_rag.engine.sequence import SequenceId
from edge_rag.engine.speculative.drafter import Drafter
from edge_rag.engine.speculative.step_cost import StepCost


class Speculation:
    """Has requests draft, and learns what drafts cost and gain.

    Args:
        most: Most tokens that a request drafts for a step; 0 for none.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._cost = StepCost()

    def drafter(self, request: TokenRequest) -> Drafter | None:
        """Makes what drafts for a request; None where nothing is to be drafted, or the model has no free choice."""
        free = self._most > 0 and isinstance(request.constraint.next(), AnyToken)
        return Drafter(request.prompt) if free else None

    def draft(self, running: Iterable[ActiveRequest]) -> None:
        """Has those that say a token in the next step draft what may come after it."""
        if self._most:
            speaking = [request for request in running if request.sequence.pending == 1]
            for request in speaking:
                request.draft(self._most, len(speaking), self._cost)

    def choose(
        self, plan: StepPlan, live: Mapping[SequenceId, ActiveRequest], logits: Logits
    ) -> list[tuple[ActiveRequest, tuple[int, ...]]]:
        """Chooses what the requests of a step say: drafted tokens that were right, and one more.

        Args:
            plan: The step.
            live: Requests by sequence.
            logits: float32 [R, V], of the plan's tokens that want them, in order.

        Raises:
            InferenceFailed: A row holds something that is not a number.
        """
        requests = [(live[entry.sequence], entry.drafted) for entry in plan.entries if entry.wants_logits]
        asked = [Asked(r.choice, r.move, r.sequence.draft[:drafted]) for r, drafted in requests]
        said = [(r, tokens) for (r, _), tokens in zip(requests, choose(logits, asked), strict=True)]
        for request, tokens in said:
            if request.drafter is not None:
                request.drafter.learn(tokens)
        return said

    def observe(self, plan: StepPlan, seconds: float) -> None:
        """Takes in how long a step took."""
        if self._most and plan.tokens == plan.decodes + plan.drafted:
            self._cost.observe(plan.tokens, seconds)
