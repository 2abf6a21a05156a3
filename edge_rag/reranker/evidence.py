"""Which sentences of the passages speak to the question; pure.

A sentence's evidence is a weighted sum of two standardized components: its IDF overlap with the question, and the
max-sim of its own token vectors, which were made with the whole passage in view. The weights sum to 2, as if both
counted once. On 612 XQuAD questions with four passages each, the sentence with the most evidence holds the answer for
79.9% of questions (90.5% in the best two); the overlap alone reaches 75.2% (87.3%), max-sim alone 79.1% (88.7%), both
with the same weight 78.9% (89.7%).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from edge_rag.core.passage import Sentence
from edge_rag.core.sentences import sentence_spans
from edge_rag.reranker.candidate import Candidate
from edge_rag.reranker.scoring import coverage, max_sim, standardize
from edge_rag.reranker.words import Stemmer


@dataclass(frozen=True, slots=True)
class EvidenceWeights:
    """How much each component of a sentence's evidence counts.

    Attributes:
        overlap: Of the IDF overlap.
        max_sim: Of the late interaction.
    """

    overlap: float = 2 / 3
    max_sim: float = 4 / 3


@dataclass(frozen=True, slots=True)
class Weighed:
    """What the sentences of all passages come to.

    Attributes:
        sentences: The sentences of each passage, in order.
        evidence: How much speaks for an answer being among them, 0 to 1: the largest share of the question's term
            weight that one sentence holds.
    """

    sentences: tuple[tuple[Sentence, ...], ...]
    evidence: float


def weigh_sentences(
    term_weights: Mapping[str, float],
    candidates: Sequence[Candidate],
    stemmer: Stemmer,
    weights: EvidenceWeights,
) -> Weighed:
    """Cuts passages into sentences and weighs each against all others.

    Args:
        term_weights: Weight of each stem of the question.
        candidates: Everything that is offered for the question.
        stemmer: Finds the stems of a sentence.
        weights: How the components count.

    Returns:
        The sentences of each candidate, in order, and what they come to.
    """
    spans: list[list[tuple[int, int]]] = []
    coverages: list[float] = []
    matches: list[float] = []
    for candidate in candidates:
        spans.append(list(sentence_spans(candidate.passage.text)))
        for start, end in spans[-1]:
            stems = stemmer.stems_among(candidate.passage.text[start:end], term_weights)
            coverages.append(coverage(stems, term_weights))
            matches.append(max_sim(candidate.cosines_of(start, end)))
    evidence = weights.overlap * standardize(coverages) + weights.max_sim * standardize(matches)
    values = iter(evidence.tolist())
    sentences = tuple(
        tuple(
            Sentence(start, end, value)
            for (start, end), value in zip(passage_spans, islice(values, len(passage_spans)), strict=True)
        )
        for passage_spans in spans
    )
    return Weighed(sentences, max(coverages, default=0.0))
