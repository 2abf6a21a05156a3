"""Figures of a simulation."""

from __future__ import annotations

import numpy as np

from tests.unit.engine.scheduling.simulation.box import Record


def fairness(record: Record) -> float:
    """Jain's index of the clients' rates of service: 1 if equal, 1 / clients at worst.

    A client's rate is its tokens by the time it had requests on the box. Where order is by arrival alone, rates are in
    proportion to what each client requests. (Jain, Chiu and Hawe, "A quantitative measure of fairness", 1984.)
    """
    rates = np.array([record.served_tokens[client] / active for client, active in record.active_s.items() if active])
    return float(rates.sum() ** 2 / (len(rates) * (rates**2).sum())) if len(rates) else 1.0


def summary(record: Record) -> dict[str, float]:
    """Returns the figures of a run by name."""
    return {
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
    }


def _recomputed(record: Record) -> float:
    """Returns the share of computed tokens that had been computed before they were lost to a preemption."""
    # The last token of an answer is emitted, but never computed.
    needed = sum(record.served_tokens.values()) - record.finished
    return 1 - needed / record.tokens if record.tokens else 0.0
