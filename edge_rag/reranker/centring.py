"""Token vectors without the part that texts of one script share, for questions in another language than the passages.

The token vectors of a multilingual encoder have a large common part that depends on language and kind of text. Without
it, texts of two languages are compared better (Libovický, Rosa and Fraser, On the Language Neutrality of Pre-trained
Multilingual Representations, Findings of EMNLP 2020). It is estimated by the mean over calibration texts of a script.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from edge_rag.analysis.languages import Script, script_of
from edge_rag.reranker.candidate import RerankCandidate
from edge_rag.reranker.evidence import calibration_texts
from edge_rag.reranker.scoring import TokenVectorizer
from edge_rag.runtime.encoder.text_encoder import TokenVectors

Floats = NDArray[np.float32]


class TokenCentres:
    """An encoder's mean token vectors of questions and of sentences by script. For one thread at a time."""

    def __init__(self, vectorizer: TokenVectorizer) -> None:
        self._vectorizer = vectorizer
        self._known: dict[Script, tuple[Floats, Floats]] = {}

    def compare(
        self, text: str, question: TokenVectors, candidates: Sequence[RerankCandidate]
    ) -> tuple[RerankCandidate, ...]:
        """Returns the candidates in their order, with the cosines of centred vectors."""
        moved = centred(question.vectors, self._of(script_of(text))[0])
        passages = [
            centred(each.encoded.vectors.vectors, self._of(script_of(each.passage.text))[1]) for each in candidates
        ]
        return tuple(replace(each, cosines=moved @ tokens.T) for each, tokens in zip(candidates, passages, strict=True))

    def _of(self, script: Script) -> tuple[Floats, Floats]:
        if script not in self._known:
            questions, sentences = calibration_texts(script)
            vectors = self._vectorizer.token_vectors((*questions, *sentences))
            self._known[script] = _mean(vectors[: len(questions)]), _mean(vectors[len(questions) :])
        return self._known[script]


def centred(vectors: Floats, centre: Floats) -> Floats:
    """Returns vectors, float32 [tokens, dimension], less a centre, each of unit length or zero."""
    moved = vectors - centre
    lengths = np.linalg.norm(moved, axis=1, keepdims=True)
    unit: Floats = np.divide(moved, lengths, out=np.zeros_like(moved), where=lengths > 0)
    return unit


def _mean(texts: Sequence[TokenVectors]) -> Floats:
    mean: Floats = np.concatenate([each.vectors for each in texts]).mean(axis=0)
    return mean
