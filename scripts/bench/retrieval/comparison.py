"""Where the right document of each question stands in the rankings that a question goes through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edge_rag.core.passage import RankedPassage, RerankRequest, Retrieved
from edge_rag.pipeline.ports import Reranker
from edge_rag.reranker.scoring import standardize
from scripts.bench.retrieval.ranking_quality import RankingQuality, by_rank, document_rank, ranking_quality


class Comparison:
    """Collects the right document's rank by dense search, by BM25, in their fusion, and after each reranker.

    Args:
        rerankers: By the name that they are shown with. Of several, the sum of their standardized scores is shown too.
        candidates: Hits handed to a reranker.
    """

    def __init__(self, rerankers: Mapping[str, Reranker], candidates: int) -> None:
        self._rerankers = rerankers
        self._candidates = candidates
        self._ranks: dict[str, list[int | None]] = {}

    def add(self, question: str, document: str, retrieved: Retrieved) -> None:
        """Takes in what was retrieved for a question."""
        hits = retrieved.hits
        self._note("dense", by_rank(hits, lambda hit: hit.dense_rank), document)
        self._note("BM25", by_rank(hits, lambda hit: hit.lexical_rank), document)
        self._note("fused", [hit.passage.document for hit in hits], document)
        shortlist = Retrieved(hits[: self._candidates], retrieved.term_weights)
        request = RerankRequest(question, shortlist, self._candidates)
        orders = {name: reranker.rerank([request])[0].passages for name, reranker in self._rerankers.items()}
        for name, order in orders.items():
            self._note(name, [ranked.passage.document for ranked in order], document)
        if len(orders) > 1:
            self._note("sum of these", summed_order(list(orders.values())), document)

    def quality(self) -> dict[str, RankingQuality]:
        """The measures of each ranking; at least one question was added."""
        return {name: ranking_quality(ranks) for name, ranks in self._ranks.items()}

    def _note(self, name: str, ranking: Sequence[str], document: str) -> None:
        self._ranks.setdefault(name, []).append(document_rank(ranking, document))


def summed_order(orders: Sequence[Sequence[RankedPassage]]) -> list[str]:
    """Documents by the sum of several rerankers' scores of the same passages, each standardized.

    Args:
        orders: Every reranker's order of the passages, at least one.
    """
    passages = [ranked.passage for ranked in orders[0]]
    total = np.zeros(len(passages))
    for order in orders:
        scores = {ranked.passage.chunk_id: ranked.score for ranked in order}
        total += standardize([scores[passage.chunk_id] for passage in passages])
    return [passages[place].document for place in np.argsort(-total, kind="stable")]
