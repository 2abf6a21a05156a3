"""How hits got their places, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from edge_rag.client.values import HitExplanation

_HEADINGS = ("hit", "dense", "cosine", "BM25", "score", "fused", "boost", "retriever", "reranker", "merged from")


def explanation_table(explanations: Sequence[HitExplanation]) -> list[str]:
    """Returns the lines of a table, a hit a line in order; ``-`` stands where there is nothing."""
    rows = [_HEADINGS, *(_row(number, each) for number, each in enumerate(explanations, start=1))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def _row(number: int, each: HitExplanation) -> tuple[str, ...]:
    return (
        str(number),
        _rank(each.dense_rank),
        _score(each.dense_score, 3),
        _rank(each.lexical_rank),
        _score(each.lexical_score, 2),
        _score(each.fused_score, 5),
        f"x{each.boost:.3g}",
        str(each.retriever_rank),
        _score(each.rerank_score, 3),
        ", ".join(f"{part.start}-{part.end}" for part in each.merged_from) or "-",
    )


def _rank(rank: int | None) -> str:
    return "-" if rank is None else str(rank)


def _score(score: float | None, digits: int) -> str:
    return "-" if score is None else f"{score:.{digits}f}"
