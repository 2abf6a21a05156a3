"""How good rankings are, where each question has one right document and where judgements are graded; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from math import log2, sqrt
from statistics import fmean, stdev

from rich.table import Table

from edge_rag.core.passage import Hit


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
    """The measures of questions whose documents have these ranks, None where a document was not found.

    Args:
        ranks: 1-based, one a question, at least one.
    """

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
    """nDCG of a ranking by graded judgements (Järvelin and Kekäläinen, TOIS 20, 2002), 0 to 1.

    Args:
        ranking: Documents of a ranking of chunks, best first; each document counts once.
        gains: Gain of each relevant document, above 0, at least one.
        depth: Ranks that count.
    """

    def dcg(values: Iterable[float]) -> float:
        return sum(value / log2(1 + rank) for rank, value in enumerate(islice(values, depth), start=1))

    return dcg(gains.get(document, 0.0) for document in dict.fromkeys(ranking)) / dcg(
        sorted(gains.values(), reverse=True)
    )


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """How much better one ranking of the same questions is than another.

    Attributes:
        questions: How many.
        first: Mean measure of the first ranking.
        second: Mean measure of the second.
        standard_error: Of the mean of the questions' own differences.
    """

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


def by_rank(hits: Sequence[Hit], rank_of: Callable[[Hit], int | None]) -> list[str]:
    """Documents of the hits one of the two searches found, in that search's order."""
    ranked = [(rank, hit.passage.document) for hit in hits if (rank := rank_of(hit)) is not None]
    return [document for _, document in sorted(ranked)]


def ranking_table(title: str, quality: Mapping[str, RankingQuality]) -> Table:
    """A row a ranking, a column a measure."""
    table = Table(title=title)
    for heading in ("", "recall@1", "recall@5", "recall@10", "nDCG@10", "MRR"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name, row in quality.items():
        table.add_row(name, *(f"{value:.4f}" for value in asdict(row).values()))
    return table
