"""How good rankings are, where each question has one right document and where judgements are graded; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import log2, sqrt
from statistics import fmean, stdev


@dataclass(frozen=True, slots=True)
class RankingQuality:
    """Means over all questions, 0 to 1."""

    recall_at_1: float
    recall_at_5: float
    recall_at_10: float
    ndcg_at_10: float
    mrr: float


def document_rank(ranking: Iterable[str], document: str) -> int | None:
    """1-based rank of a document in a ranking of its chunks, each document counted once."""
    order = list(dict.fromkeys(ranking))
    return order.index(document) + 1 if document in order else None


def ranking_quality(ranks: Sequence[int | None]) -> RankingQuality:
    """The measures of questions whose documents have these ranks, None where a document was not found."""

    def mean(value: Callable[[int], float]) -> float:
        return sum(value(rank) for rank in ranks if rank is not None) / len(ranks)

    return RankingQuality(
        recall_at_1=mean(lambda rank: rank <= 1),
        recall_at_5=mean(lambda rank: rank <= 5),
        recall_at_10=mean(lambda rank: rank <= 10),
        ndcg_at_10=mean(lambda rank: 1 / log2(1 + rank) if rank <= 10 else 0.0),
        mrr=mean(lambda rank: 1 / rank),
    )


def graded_ndcg(ranking: Iterable[str], gains: Mapping[str, float], depth: int = 10) -> float:
    """nDCG of a ranking by graded judgements (Järvelin and Kekäläinen, TOIS 20, 2002), 0 to 1."""

    def dcg(values: Iterable[float]) -> float:
        return sum(value / log2(1 + rank) for rank, value in enumerate(islice(values, depth), start=1))

    return dcg(gains.get(document, 0.0) for document in dict.fromkeys(ranking)) / dcg(
        sorted(gains.values(), reverse=True)
    )


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """How much better one ranking of the same questions is than another."""

    questions: int
    first: float
    second: float
    standard_error: float

    @property
    def difference(self) -> float:
        """Mean of second minus first."""
        return self.second - self.first


def paired_difference(first: Sequence[float], second: Sequence[float]) -> PairedDifference:
    """Compares two measures of the same questions, at least two, in the same order."""
    differences = [two - one for one, two in zip(first, second, strict=True)]
    return PairedDifference(len(differences), fmean(first), fmean(second), stdev(differences) / sqrt(len(differences)))
