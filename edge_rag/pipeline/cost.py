"""Estimated costs of the batch stages' requests, in tokens that a model reads; pure.

Estimates decide the order of clients and the size of batches; clients are charged the measured time.
"""

from __future__ import annotations

from typing import Final

from edge_rag.analysis.questions import QUESTION_TOKENS
from edge_rag.core.passage import RerankRequest, RetrievalRequest, Retrieved

RETRIEVAL_BATCH: Final = 160
"""Largest cost of a batch of several retrievals, tokens: a long question is alone, short ones are about six.

All of a batch wait for its last one. On a CPU nothing is gained by encoding several texts at once.
"""

RERANK_BATCH: Final = 256
"""Largest cost of a batch of several rerankings, tokens; what costs more is computed in steps."""

RERANK_STEP: Final = 512
"""Tokens of a step of a reranking: as many as a CPU encodes at once."""

TOKEN_CHARACTERS: Final = 4
"""Characters of a token, about."""

_SEARCH: Final = 16
_FILTER: Final = 32
_EXPLAIN: Final = 16
_PASSAGE: Final = 2
_HITS_PER_TOKEN: Final = 4
_NEWEST: Final = 0.1
"""Weight of the newest question in the mean of its collection."""

_MAX_KINDS: Final = 1024


def tokens(characters: int) -> int:
    """Returns about how many tokens a text has."""
    return -(-characters // TOKEN_CHARACTERS)


class RetrievalCosts:
    """Costs of retrievals; any thread.

    A retrieval searches for each wording of its question, the corrected ones and those with synonyms, too. They are
    found by the retrieval itself, so their number is expected to be the mean of earlier questions to the collection.
    """

    def __init__(self) -> None:
        self._wordings: dict[tuple[str, bool], float] = {}

    def cost(self, request: RetrievalRequest) -> float:
        extras = _FILTER * (request.filter is not None) + _EXPLAIN * request.explain
        wordings = self._wordings.get(_kind(request), _expected(request))
        return wordings * (_SEARCH + _question(request.question)) + extras + request.limit / _HITS_PER_TOKEN

    def learn(self, request: RetrievalRequest, retrieved: Retrieved) -> None:
        kind, count = _kind(request), 1.0 + len(retrieved.others)
        if kind not in self._wordings and len(self._wordings) >= _MAX_KINDS:
            self._wordings.clear()
        before = self._wordings.get(kind, _expected(request))
        self._wordings[kind] = before + _NEWEST * (count - before)


def _kind(request: RetrievalRequest) -> tuple[str, bool]:
    return request.collection, bool(request.turns)


def _expected(request: RetrievalRequest) -> float:
    return 1.0 + bool(request.turns)


def rerank_cost(request: RerankRequest, unread_characters: int | None = None) -> float:
    """Returns the cost of a reranking: the wordings of its question, and the passages that are not yet encoded.

    Args:
        unread_characters: Characters of these passages; None if all have to be encoded.
    """
    hits = request.retrieved.hits
    unread = sum(len(hit.passage.text) for hit in hits) if unread_characters is None else unread_characters
    wordings = (request.question, *(other.text for other in request.retrieved.others))
    return sum(map(_question, wordings)) + tokens(unread) + len(wordings) * _PASSAGE * len(hits)


def _question(text: str) -> int:
    return min(1 + tokens(len(text)), QUESTION_TOKENS)
