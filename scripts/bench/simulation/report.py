"""What a simulation came to, as numbers and as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from edge_rag.core.query import Priority
from scripts.bench.simulation.box import Record

PERCENTILES = (50, 95, 99)


def fairness(record: Record) -> float:
    """Jain's index of the clients' rates of service: 1 if equal, 1 / clients at worst.

    A client's rate is its tokens by the time it had requests on the box. Where order is by arrival alone, rates are in
    proportion to what each client requests. (Jain, Chiu and Hawe, "A quantitative measure of fairness", 1984.)
    """
    rates = np.array([record.served_tokens[client] / active for client, active in record.active_s.items() if active])
    return float(rates.sum() ** 2 / (len(rates) * (rates**2).sum())) if len(rates) else 1.0


def percentiles(values: NDArray[np.float64]) -> tuple[float, ...]:
    """Returns the percentiles that are shown."""
    return tuple(float(value) for value in np.percentile(values, PERCENTILES))


def summary(record: Record) -> dict[str, float]:
    """Returns the figures of a run by name."""
    first, completion = np.array(record.first_token_s), np.array(record.completion_s)
    figures: dict[str, float] = {
        "finished": record.finished,
        "refused": record.refused,
        "modelled_s": record.seconds,
        "steps": record.steps,
        "output_tokens_per_s": record.output_tokens / record.seconds if record.seconds else 0.0,
        "occupancy": record.occupancy,
        "fairness": fairness(record),
        "recomputed_share": _recomputed(record),
        "preemptions": sum(record.preemptions.values()),
        "peak_pages": record.peak_pages,
        "slot_changes": record.slot_changes,
    }
    if record.hottest_c:
        figures |= {
            "hottest_celsius": record.hottest_c,
            "slowed_down_s": record.slowed_s,
            "throttle_moves": record.throttle_moves,
        }
    if record.finished:
        for name, values in (("ttft", first), ("completion", completion)):
            for percent, value in zip(PERCENTILES, percentiles(values), strict=True):
                figures[f"{name}_p{percent}_s"] = value
    return figures


def _recomputed(record: Record) -> float:
    """Returns the share of computed tokens that had been computed before they were lost to a preemption."""
    # The last token of an answer is emitted, but never computed.
    needed = sum(record.served_tokens.values()) - record.finished
    return 1 - needed / record.tokens if record.tokens else 0.0


def totals_table(records: Mapping[str, Record]) -> Table:
    """Lays the runs' totals side by side."""
    table = Table(title="Totals")
    table.add_column("")
    for name in records:
        table.add_column(name, justify="right")
    figures = {name: summary(record) for name, record in records.items()}
    for key in dict.fromkeys(key for each in figures.values() for key in each):
        table.add_row(key.replace("_", " "), *(f"{figures[name].get(key, 0):,.4g}" for name in records))
    for reason in sorted({reason for record in records.values() for reason in record.preemptions}):
        table.add_row(f"- {reason}", *(f"{record.preemptions[reason]:,}" for record in records.values()))
    return table


def groups_table(title: str, records: Mapping[str, Record], by: str, most: int = 8) -> Table:
    """Shows percentiles of each class or client.

    Args:
        title: Above the table.
        records: Runs by name.
        by: ``class`` or ``client``.
        most: Most groups shown; of more, those with the most requests and the one with the fewest.
    """
    table = Table(title=title)
    for name in (by, "run", "requests"):
        table.add_column(name, justify="right" if name == "requests" else "left", no_wrap=True)
    for name in ("queue", "TTFT", "completion"):
        table.add_column(f"{name} p50 / p95 / p99, s", justify="right", no_wrap=True)
    table.add_column("slowdown", justify="right")
    for group in _groups(records, by, most):
        for run, record in records.items():
            labels = _labels(record, by)
            chosen = np.array([label == group for label in labels], bool)
            if chosen.any():
                columns = [
                    " / ".join(f"{value:.2f}" for value in percentiles(np.array(values)[chosen]))
                    for values in (record.queue_s, record.first_token_s, record.completion_s)
                ]
                slowdown = float(np.array(record.slowdown)[chosen].mean())
                table.add_row(group, run, f"{int(chosen.sum()):,}", *columns, f"{slowdown:.1f}")
    return table


def _labels(record: Record, by: str) -> Sequence[str]:
    if by == "class":
        return [Priority(value).name.lower() for value in record.priority]
    names = list(record.clients)
    return [names[index] for index in record.client]


def _groups(records: Mapping[str, Record], by: str, most: int) -> list[str]:
    labels = np.array(_labels(next(iter(records.values())), by))
    names, counts = np.unique(labels, return_counts=True)
    if by == "class":
        return [priority.name.lower() for priority in Priority if priority.name.lower() in names]
    order = np.argsort(-counts, kind="stable")
    ranked = [str(names[index]) for index in order]
    return ranked if len(ranked) <= most else [*ranked[: most - 1], ranked[-1]]
