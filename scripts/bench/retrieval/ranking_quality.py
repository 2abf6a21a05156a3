"""How good a ranking is when each question has one right document; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import log2

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
