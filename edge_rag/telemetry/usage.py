"""Usage by client, for metering."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from prometheus_client.core import CounterMetricFamily, Metric

from edge_rag.core.answer import Usage
from edge_rag.core.monitoring.metrics import ClientUsage, RequestReport

MOST_CLIENTS: Final = 256
"""Clients that are kept apart."""

OTHERS: Final = "other"
"""Label of the metrics of all clients that are not kept apart."""


class UsageMeter:
    """Sums up what clients use. May be used from any thread.

    Args:
        most_clients: Clients that are kept apart, first come first served; the rest is summed up together, so that
            memory and the number of time series stay bounded whoever calls.

    Attributes:
        since: When the summing up began, UTC.
    """

    def __init__(self, most_clients: int = MOST_CLIENTS) -> None:
        self.since = datetime.now(UTC)
        self._most_clients = most_clients
        self._lock = threading.Lock()
        self._usage: dict[str | None, ClientUsage] = {}

    def ended(self, report: RequestReport) -> None:
        """Adds a request that is over."""
        with self._lock:
            so_far = self._of(report.client)
            self._usage[so_far.client] = replace(
                so_far,
                requests=so_far.requests + 1,
                prompt_tokens=so_far.prompt_tokens + report.usage.prompt_tokens,
                cached_prompt_tokens=so_far.cached_prompt_tokens + report.usage.cached_prompt_tokens,
                generated_tokens=so_far.generated_tokens + report.usage.generated_tokens,
                slot_s=so_far.slot_s + report.slot_s,
            )

    def record_remote(self, client: str, usage: Usage, alone: bool) -> None:
        """Adds what other machines wrote of an answer that is over.

        Args:
            client: Who asked.
            usage: Tokens they wrote; the prompt's where it was not computed here.
            alone: Whether the generator here had no part in it, and so reports no request.
        """
        with self._lock:
            so_far = self._of(client)
            self._usage[so_far.client] = replace(
                so_far,
                requests=so_far.requests + alone,
                prompt_tokens=so_far.prompt_tokens + usage.prompt_tokens,
                generated_tokens=so_far.generated_tokens + usage.generated_tokens,
            )

    def refused(self, client: str) -> None:
        """Adds a request that was refused."""
        with self._lock:
            so_far = self._of(client)
            self._usage[so_far.client] = replace(so_far, refused=so_far.refused + 1)

    def read(self) -> tuple[ClientUsage, ...]:
        """Returns every client's usage by name, the others together last."""
        with self._lock:
            return tuple(sorted(self._usage.values(), key=lambda usage: (usage.client is None, usage.client or "")))

    def collect(self) -> Iterator[Metric]:
        """Yields the usage as metrics; this makes a ledger a Prometheus collector."""
        sums = self.read()
        for name, help_, values in (
            ("requests", "Requests that reached the generator.", [float(usage.requests) for usage in sums]),
            ("refused_requests", "Refused requests.", [float(usage.refused) for usage in sums]),
            ("prompt_tokens", "Prompt tokens.", [float(usage.prompt_tokens) for usage in sums]),
            (
                "cached_prompt_tokens",
                "Prompt tokens found in the prefix cache.",
                [float(u.cached_prompt_tokens) for u in sums],
            ),
            ("generation_tokens", "Generated tokens.", [float(usage.generated_tokens) for usage in sums]),
            ("slot_seconds", "Time in slots, seconds.", [usage.slot_s for usage in sums]),
        ):
            family = CounterMetricFamily(f"edge_rag_client_{name}", f"{help_} By client.", labels=("client",))
            for usage, value in zip(sums, values, strict=True):
                family.add_metric((OTHERS if usage.client is None else usage.client,), value)
            yield family

    def _of(self, client: str) -> ClientUsage:
        key = client if client in self._usage or len(self._usage) < self._most_clients else None
        return self._usage.get(key) or ClientUsage(key)
