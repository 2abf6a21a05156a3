"""Metrics and traces of calls. The registry is injected; names are those of vLLM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from edge_rag.core.answer import Finished
from edge_rag.core.documents.document import IngestOutcome
from edge_rag.core.monitoring.metrics import LatencyMetric
from edge_rag.errors import ConfigurationError
from edge_rag.telemetry.activity import Latencies

AttributeValue = str | float | int


def times(queue_s: float, compute_s: float) -> dict[str, AttributeValue]:
    """Returns the attributes of every stage's span: waiting and processing time, seconds."""
    return {"edge_rag.queue_seconds": queue_s, "edge_rag.compute_seconds": compute_s}


class StageTrace(Protocol):
    """The span of a stage."""

    def note(self, attributes: Mapping[str, AttributeValue]) -> None:
        """Adds attributes; they must not contain text of questions or documents."""
        ...


class CallTrace(Protocol):
    """The span of a call."""

    def stage(self, name: str) -> AbstractContextManager[StageTrace]:
        """Returns the span of a stage, which ends with the block; an exception of the block is recorded by its
        class.
        """
        ...

    def end(self, request_id: str, outcome: str) -> None:
        """Ends the span.

        Args:
            request_id: Id of the request.
            outcome: Name of the gRPC status.
        """
        ...


class Traces(Protocol):
    """Starts traces."""

    def call(self, method: str, metadata: Iterable[tuple[str, str | bytes]]) -> CallTrace:
        """Starts the span of a call.

        Args:
            method: Name of the RPC.
            metadata: Metadata of the call; ``traceparent`` and ``tracestate`` are used (W3C Trace Context).
        """
        ...

    def close(self) -> None:
        """Sends the remaining spans; waits a few seconds at most."""
        ...


class Untraced:
    """Discards all traces."""

    def call(self, method: str, metadata: Iterable[tuple[str, str | bytes]]) -> CallTrace:
        return self

    @contextmanager
    def stage(self, name: str) -> Iterator[StageTrace]:
        yield self

    def note(self, attributes: Mapping[str, AttributeValue]) -> None:
        """Does nothing."""

    def end(self, request_id: str, outcome: str) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""


UNTRACED = Untraced()


_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """Metrics of calls and documents."""

    def __init__(self, registry: CollectorRegistry, latencies: Latencies) -> None:
        self._registry = registry
        self._latencies = latencies
        self.requests = Counter(
            "edge_rag_requests_total", "Calls by method and gRPC status.", ("method", "status"), registry=registry
        )
        self.calls = Gauge("edge_rag_calls", "Calls in flight.", registry=registry)
        self.queue_time = Histogram(
            "edge_rag_request_queue_time_seconds",
            "Waiting time by stage.",
            ("stage",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.compute_time = Histogram(
            "edge_rag_request_compute_time_seconds",
            "Compute time by stage.",
            ("stage",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.first_token = Histogram(
            "edge_rag_time_to_first_token_seconds",
            "Time from the call to the first text.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.latency = Histogram(
            "edge_rag_e2e_request_latency_seconds",
            "Time from the call to its end.",
            ("method",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.prompt_tokens = Counter(
            "edge_rag_prompt_tokens_total", "Prompt tokens of answered questions.", registry=registry
        )
        self.generation_tokens = Counter(
            "edge_rag_generation_tokens_total", "Generated tokens of answered questions.", registry=registry
        )
        self.documents = Counter("edge_rag_documents_total", "Documents by outcome.", ("outcome",), registry=registry)

    def answered(self, finished: Finished, seconds: float) -> None:
        """Counts a finished answer, so many seconds after the call."""
        self._latencies.add(LatencyMetric.COMPLETION, (seconds,))
        self._latencies.add_stages(finished.stages)
        for stage in finished.stages:
            self.queue_time.labels(stage.stage).observe(stage.queue_s)
            self.compute_time.labels(stage.stage).observe(stage.compute_s)
        if finished.first_token_s is not None:
            self.first_token.observe(finished.first_token_s)
            self._latencies.add(LatencyMetric.FIRST_TOKEN, (finished.first_token_s,))
        self.prompt_tokens.inc(finished.usage.prompt_tokens)
        self.generation_tokens.inc(finished.usage.generated_tokens)

    def ingested(self, outcome: IngestOutcome) -> None:
        self.documents.labels(outcome.status.value).inc()

    def serve(self, port: int) -> None:
        """Serves the registry over HTTP on a loopback port until the process ends.

        Raises:
            ConfigurationError: The port cannot be bound.
        """
        try:
            start_http_server(port, addr="127.0.0.1", registry=self._registry)
        except OSError as error:
            raise ConfigurationError(f"metrics.port: {port} cannot be bound: {error.strerror}") from error
