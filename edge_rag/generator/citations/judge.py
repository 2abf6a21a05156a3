"""Judges decide which sentences of an answer are cited: the rules alone, or an entailment model within their limits.

An entailment model never makes a claim supported that the rules reject for its numbers, units, names, negations or
opposites: such sentences of the passages are not among a finding's candidates.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.answer import UnsupportedReason
from edge_rag.generator.citations.attribution import Finding, Support

MIN_ENTAILMENT: Final = 0.9
"""Least probability of entailment at which a candidate supports a sentence."""

MIN_CONTRADICTION: Final = 0.9
"""Least probability of contradiction at which a sentence that the rules accept is not cited."""

JUDGE_SECONDS: Final = 2.0
"""Most time of an entailment model for one answer, seconds; after it the rules decide alone."""


class PairClassifier(Protocol):
    """Judges pairs of sentences. Any thread."""

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Returns how likely each premise entails its hypothesis, says nothing about it, or contradicts it.

        Args:
            pairs: Premise and hypothesis of each pair.

        Returns:
            float32 [pairs, 3]: entailment, neutral, contradiction; each row sums to 1.

        Raises:
            InferenceFailed: The model failed.
        """
        ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision on a sentence.

    Attributes:
        support: The sentences that are cited for it, in order; empty if none are.
        reason: Why none are; None if there are some.
    """

    support: tuple[Support, ...]
    reason: UnsupportedReason | None


class Judge(Protocol):
    """Decides from what the passages say about sentences. For one thread at a time.

    What is cited is the support or one of the candidates of the finding.
    """

    def decide(self, findings: Sequence[Finding]) -> list[Verdict]:
        """Decides on each sentence, in order.

        Raises:
            InferenceFailed: A model failed.
        """
        ...


class RulesAlone:
    """The default ``Judge``: cited is what the rules support."""

    def decide(self, findings: Sequence[Finding]) -> list[Verdict]:
        return [_by_rules(finding) for finding in findings]


class EntailmentJudge:
    """A ``Judge`` with an entailment model, which reads all pairs of a call at once.

    What the rules support is not cited if the model judges that it contradicts the sentence. What lacks only words is
    cited if the model judges that it entails the sentence.
    """

    def __init__(
        self,
        classifier: PairClassifier,
        min_entailment: float = MIN_ENTAILMENT,
        min_contradiction: float = MIN_CONTRADICTION,
    ) -> None:
        self._classifier = classifier
        self._min_entailment = min_entailment
        self._min_contradiction = min_contradiction

    def decide(self, findings: Sequence[Finding]) -> list[Verdict]:
        """See ``Judge``."""
        premises = [_premises(finding) for finding in findings]
        pairs = [(text, each.claim) for each, texts in zip(findings, premises, strict=True) for text in texts]
        found = self._classifier.probabilities(pairs) if pairs else np.empty((0, 3), np.float32)
        verdicts, past = [], 0
        for finding, texts in zip(findings, premises, strict=True):
            verdicts.append(self._verdict(finding, found[past : past + len(texts)]))
            past += len(texts)
        return verdicts

    def _verdict(self, finding: Finding, judged: NDArray[np.float32]) -> Verdict:
        verdict = _by_rules(finding)
        if not len(judged):
            return verdict
        if finding.support:
            if judged[0, 2] >= self._min_contradiction:
                return Verdict((), UnsupportedReason.CONTRADICTED)
            return verdict
        best = int(np.argmax(judged[:, 0]))
        if judged[best, 0] >= self._min_entailment:
            return Verdict(finding.candidates[best].places, None)
        return verdict


class BoundedJudge:
    """A ``Judge`` that another one is, for a limited time of one answer; then the rules alone.

    Args:
        deadline: Time on the clock after which it is not asked any more; None for none.
        seconds: Most time of it in all, seconds; a call that has begun is completed.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        judge: Judge,
        deadline: float | None,
        seconds: float = JUDGE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._judge = judge
        self._deadline = deadline
        self._left = seconds
        self._clock = clock

    def decide(self, findings: Sequence[Finding]) -> list[Verdict]:
        """See ``Judge``."""
        began = self._clock()
        if self._left <= 0 or (self._deadline is not None and began >= self._deadline):
            return RulesAlone().decide(findings)
        try:
            return self._judge.decide(findings)
        finally:
            self._left -= self._clock() - began


def _by_rules(finding: Finding) -> Verdict:
    if finding.support:
        return Verdict(finding.support, None)
    lacks = UnsupportedReason.NO_SOURCE if finding.conflict is None else UnsupportedReason.OTHER_NUMBER
    return Verdict((), lacks)


def _premises(finding: Finding) -> list[str]:
    if finding.support:
        return [finding.premise] if finding.premise else []
    return [candidate.text for candidate in finding.candidates]
