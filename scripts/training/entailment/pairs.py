"""A pair to learn from: a premise, a hypothesis, and what the one says about the other."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """What a premise says about a hypothesis."""

    ENTAILMENT = "entailment"
    NEUTRAL = "neutral"
    CONTRADICTION = "contradiction"
    NOT_ENTAILED = "not entailed"
    """Neutral or contradiction; which of the two is open."""


LABELS = (Verdict.ENTAILMENT, Verdict.NEUTRAL, Verdict.CONTRADICTION)
"""The classes of the model, in the order of its outputs."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A premise and a hypothesis with a verdict.

    Attributes:
        premise: One or a few sentences.
        hypothesis: One claim.
        verdict: What holds.
    """

    premise: str
    hypothesis: str
    verdict: Verdict
