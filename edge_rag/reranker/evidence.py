"""Evidence: how well each sentence answers the question, and whether the passages answer it at all.

Sentence evidence is a weighted sum of two standardized components: the sentence's IDF overlap with the question, and
the max-sim of its own token vectors, which are computed with the whole passage as context. The weights sum to 2, as if
both counted once. A word of the question that only the previous sentence contains counts half, since the topic is often
named there. On 612 XQuAD questions with four passages each, the sentence with the most evidence contains the answer for
80.6% of questions (90.7% in the best two), without the previous sentence for 79.6% (90.4%). Each half of the articles
gains, 0.3 and 1.9 points. Overlap alone reaches 75%, max-sim alone 79%. No other feature that was tried gained a full
point on articles it was not fitted to: score of the passage, words of the next sentence, shared bigrams, expected
answer type, max-sim in the other direction, length, position in the passage.

Answerability is a logistic function of the largest coverage of the question's term weight by one sentence, and of the
largest max-sim of a sentence, not standardized. Encoders differ in the similarity of unrelated texts, so max-sim is
rescaled: 0 for unrelated texts, 1 for equal ones. The function was fitted to 612 XQuAD questions over 120 paragraphs
and the same questions with their article's paragraphs removed. Shares of questions below 0.25:

    =========================================  =====================  ==============
    share of questions                         article is removed     answer is there
    =========================================  =====================  ==============
    all articles                               94%                    2.1%
    fitted to one half, measured on the other  88% and 97%            0.8% and 3.4%
    coverage alone, likewise                   75%                    3.1%
    =========================================  =====================  ==============

The area under the ROC curve is 0.995, with coverage alone 0.969. Of 46 questions about the sample documents none is
below 0.25, and all of 48 XQuAD questions asked of the sample documents are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from math import exp
from typing import Final

from edge_rag.core.passage import Sentence
from edge_rag.reranker.candidate import RerankCandidate
from edge_rag.reranker.scoring import TokenVectorizer, coverage, max_sim, standardize

_PAIRS: Final = (
    (
        "How often must the filter be changed?",
        "The filter of the oil separator is replaced after every 500 hours of operation.",
    ),
    (
        "Who wrote the first opera in this language?",
        "The composer finished his only opera in the spring previous he moved to the capital.",
    ),
    (
        "What is the population of the island?",
        "About nine thousand people live on the island, most of them along the northern coast.",
    ),
    (
        "When did the two countries sign the treaty?",
        "Both governments signed the peace agreement in the autumn after a year of talks.",
    ),
    (
        "Which medicine is given against a high fever?",
        "Paracetamol lowers the temperature of the patient within an hour.",
    ),
    (
        "Where is the spare key of the storeroom kept?",
        "A second key hangs in the glass box beside the entrance of the workshop.",
    ),
    (
        "Why do leaves turn red previous they fall?",
        "As the days become shorter the trees stop making chlorophyll, and other colours show.",
    ),
    (
        "How many votes does a new law need?",
        "A bill is passed when more than half of the members present agree to it.",
    ),
)
"""Questions and their sentences; each question is unrelated to the sentences of the others."""


@dataclass(frozen=True, slots=True)
class AnswerabilityWeights:
    """The logistic function.

    Attributes:
        coverage: Weight of the largest coverage.
        similarity: Weight of the largest rescaled max-sim.
        bias: Constant term.
    """

    coverage: float = 6.0
    similarity: float = 25.0
    bias: float = -13.0


@dataclass(frozen=True, slots=True)
class Answerability:
    """Rates whether passages answer a question.

    Attributes:
        unrelated: Max-sim of unrelated texts, below 1.
        weights: The logistic function.
    """

    unrelated: float
    weights: AnswerabilityWeights = AnswerabilityWeights()

    def evidence(self, coverage: float, similarity: float) -> float:
        """Returns the evidence that the passages answer the question, 0 to 1.

        Args:
            coverage: Largest share of the question's term weight that one sentence contains, 0 to 1.
            similarity: Largest max-sim of a sentence, -1 to 1.
        """
        above = (similarity - self.unrelated) / (1.0 - self.unrelated)
        odds = self.weights.coverage * coverage + self.weights.similarity * above + self.weights.bias
        return 1.0 / (1.0 + exp(-max(-60.0, min(60.0, odds))))


def unrelated_similarity(vectorizer: TokenVectorizer) -> float:
    """Returns the mean max-sim of unrelated questions and sentences, at most 0.99.

    Raises:
        InferenceFailed: The encoder failed.
    """
    vectors = vectorizer.token_vectors([text for pair in _PAIRS for text in pair])
    apart = [
        max_sim(vectors[2 * question].vectors @ vectors[2 * sentence + 1].vectors.T)
        for question, sentence in product(range(len(_PAIRS)), repeat=2)
        if question != sentence
    ]
    return min(0.99, sum(apart) / len(apart))


@dataclass(frozen=True, slots=True)
class EvidenceWeights:
    """Weights of a sentence's evidence.

    Attributes:
        overlap: Weight of the IDF overlap.
        max_sim: Weight of the late interaction.
        carried: Weight of a word that only the previous sentence contains, 0 to 1.
    """

    overlap: float = 2 / 3
    max_sim: float = 4 / 3
    carried: float = 0.5


@dataclass(frozen=True, slots=True)
class WeightedSentences:
    """Sentences with their evidence.

    Attributes:
        sentences: The sentences of each passage, in order.
        evidence: Evidence that the passages answer the question, 0 to 1; 0 without a sentence.
    """

    sentences: tuple[tuple[Sentence, ...], ...]
    evidence: float


def weigh_sentences(
    term_weights: Mapping[str, float],
    candidates: Sequence[RerankCandidate],
    weights: EvidenceWeights,
    answerability: Answerability,
) -> WeightedSentences:
    """Rates each sentence relative to all sentences of the passages.

    Args:
        term_weights: Weight of each index term of the question.
        candidates: All passages of the question.
        weights: Weights of the components.
        answerability: Rates the passages as a whole.
    """
    spans: list[list[tuple[int, int]]] = []
    coverages: list[float] = []
    matches: list[float] = []
    for candidate in candidates:
        spans.append([(start, end) for start, end, _ in candidate.encoded.sentences])
        previous: set[str] = set()
        for start, end, terms in candidate.encoded.sentences:
            asked = term_weights.keys() & terms
            own, with_previous = coverage(asked, term_weights), coverage(previous | asked, term_weights)
            coverages.append(own + weights.carried * (with_previous - own))
            matches.append(max_sim(candidate.cosines_of(start, end)))
            previous = asked
    evidence = weights.overlap * standardize(coverages) + weights.max_sim * standardize(matches)
    values = iter(evidence.tolist())
    sentences = tuple(
        tuple(
            Sentence(start, end, value)
            for (start, end), value in zip(passage_spans, islice(values, len(passage_spans)), strict=True)
        )
        for passage_spans in spans
    )
    return WeightedSentences(sentences, answerability.evidence(max(coverages), max(matches)) if coverages else 0.0)
