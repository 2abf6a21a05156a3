"""Metrics of the machines that compute for this one, read when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from edge_rag.core.monitoring.status import RemoteInUse


class OffloadMetrics:
    """A Prometheus collector of the remotes' present state.

    Args:
        remotes: Returns it.
    """

    def __init__(self, remotes: Callable[[], tuple[RemoteInUse, ...]]) -> None:
        self._remotes = remotes

    def collect(self) -> Iterator[Metric]:
        """Returns the metrics."""
        asked = GaugeMetricFamily(
            "edge_rag_remote_asked", "1 where a machine is asked, 0 where it rests after failures.", labels=("remote",)
        )
        under_way = GaugeMetricFamily(
            "edge_rag_remote_requests_running", "Requests of ours that a machine has.", labels=("remote",)
        )
        answers = CounterMetricFamily("edge_rag_remote_answers", "Answers that a machine finished.", labels=("remote",))
        failures = CounterMetricFamily(
            "edge_rag_remote_failures",
            "Times a machine failed, was too slow or said what it must not.",
            labels=("remote",),
        )
        sent = CounterMetricFamily("edge_rag_remote_sent_bytes", "What was sent to a machine.", labels=("remote",))
        embedded = CounterMetricFamily(
            "edge_rag_remote_embedded_texts", "Texts that a machine embedded.", labels=("remote",)
        )
        reranked = CounterMetricFamily(
            "edge_rag_remote_reranked", "Questions whose passages a machine ordered.", labels=("remote",)
        )
        for remote in self._remotes():
            asked.add_metric((remote.name,), float(remote.breaker != "open"))
            under_way.add_metric((remote.name,), remote.under_way)
            answers.add_metric((remote.name,), remote.answers)
            failures.add_metric((remote.name,), remote.failures)
            sent.add_metric((remote.name,), remote.sent_bytes)
            embedded.add_metric((remote.name,), remote.embedded_texts)
            reranked.add_metric((remote.name,), remote.reranked)
        yield from (asked, under_way, answers, failures, sent, embedded, reranked)
