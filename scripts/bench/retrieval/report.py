"""The table of rankings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from rich.table import Table

from scripts.bench.retrieval.ranking_quality import RankingQuality


def ranking_table(title: str, quality: Mapping[str, RankingQuality]) -> Table:
    """A row a ranking, a column a measure."""
    table = Table(title=title)
    for heading in ("", "recall@1", "recall@5", "recall@10", "nDCG@10", "MRR"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name, row in quality.items():
        table.add_row(name, *(f"{value:.4f}" for value in asdict(row).values()))
    return table
