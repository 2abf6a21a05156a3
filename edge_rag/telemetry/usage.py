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

MAX_CLIENTS: Final = 256
"""Clients counted separately."""

OTHERS: Final = "other"
"""Label of all other clients in metrics."""


class UsageMeter:
    """Sums usage by client. May be used from any thread.

    Args:
        max_clients: Clients counted separately, in order of their first request; the others are summed together, so
            that memory and the number of time series stay bounded.

    Attributes:
        since: Start of the sums, UTC.
    """

    def __init__(self, max_clients: int = MAX_CLIENTS) -> None:
        self.since = datetime.now(UTC)
        self._max_clients = max_clients
        self._lock = threading.Lock()
        self._usage: dict[str | None, ClientUsage] = {}

    def ended(self, report: RequestReport) -> None:
        """Adds a request that has ended."""
        with self._lock:
            current = self._of(report.client)
            self._usage[current.client] = replace(
                current,
                requests=current.requests + 1,
                prompt_tokens=current.prompt_tokens + report.usage.prompt_tokens,
                cached_prompt_tokens=current.cached_prompt_tokens + report.usage.cached_prompt_tokens,
                generated_tokens=current.generated_tokens + report.usage.generated_tokens,
                slot_s=current.slot_s + report.slot_s,
            )

    def record_remote(self, client: str, usage: Usage, alone: bool) -> None:
        """Adds what other machines generated of an answer that has ended.

        Args:
            usage: Tokens they generated; also prompt tokens, unless the prompt was computed here.
        """
        with self._lock:
            current = self._of(client)
            self._usage[current.client] = replace(
                current,
                requests=current.requests + alone,
                prompt_tokens=current.prompt_tokens + usage.prompt_tokens,
                generated_tokens=current.generated_tokens + usage.generated_tokens,
            )

    def ingested(self, client: str, seconds: float) -> None:
        """Adds seconds of parsing, chunking and embedding a document of a client."""
        with self._lock:
            current = self._of(client)
            self._usage[current.client] = replace(current, ingest_s=current.ingest_s + seconds)

    def refused(self, client: str) -> None:
        with self._lock:
            current = self._of(client)
            self._usage[current.client] = replace(current, refused=current.refused + 1)

    def read(self) -> tuple[ClientUsage, ...]:
        with self._lock:
            return tuple(sorted(self._usage.values(), key=lambda usage: (usage.client is None, usage.client or "")))

    def collect(self) -> Iterator[Metric]:
        """Yields the sums as metrics, which makes this a Prometheus collector."""
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
            (
                "ingest_seconds",
                "Parsing, chunking and embedding of documents, seconds.",
                [usage.ingest_s for usage in sums],
            ),
        ):
            family = CounterMetricFamily(f"edge_rag_client_{name}", f"{help_} By client.", labels=("client",))
            for usage, value in zip(sums, values, strict=True):
                family.add_metric((OTHERS if usage.client is None else usage.client,), value)
            yield family

    def _of(self, client: str) -> ClientUsage:
        key = client if client in self._usage or len(self._usage) < self._max_clients else None
        return self._usage.get(key) or ClientUsage(key)
