"""Traces sent to a collector with OTLP over HTTP. Needs the extra ``traces``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import edge_rag
from edge_rag.telemetry.metrics.calls import AttributeValue, CallTrace

_SEND_S: Final = 2.0
"""Timeout of sending a batch, and of the last flush, seconds."""

_PROPAGATED: Final = frozenset({"traceparent", "tracestate"})


class OtlpTraces:
    """Sends spans in batches on a thread of its own; batches that the collector does not accept are dropped.

    Args:
        endpoint: URL to post to, for example ``http://127.0.0.1:4318/v1/traces``.
    """

    def __init__(self, endpoint: str) -> None:
        resource = Resource.create({"service.name": "edge-rag", "service.version": edge_rag.__version__})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint, timeout=_SEND_S)))
        self._tracer = self._provider.get_tracer("edge_rag", edge_rag.__version__)
        self._propagator = TraceContextTextMapPropagator()

    def call(self, method: str, metadata: Iterable[tuple[str, str | bytes]]) -> CallTrace:
        carrier = {key: value for key, value in metadata if key in _PROPAGATED and isinstance(value, str)}
        attributes = {"rpc.system": "grpc", "rpc.method": method}
        span = self._tracer.start_span(
            method, self._propagator.extract(carrier), kind=SpanKind.SERVER, attributes=attributes
        )
        return _CallSpan(self._tracer, span)

    def close(self) -> None:
        self._provider.force_flush(int(_SEND_S * 1000))
        self._provider.shutdown()


class _CallSpan:
    def __init__(self, tracer: Tracer, span: Span) -> None:
        self._tracer = tracer
        self._span = span

    @contextmanager
    def stage(self, name: str) -> Iterator[_StageSpan]:
        span = self._tracer.start_span(name, set_span_in_context(self._span))
        try:
            yield _StageSpan(span)
        except BaseException as error:
            # Only the class: a message may contain text of the question.
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(Status(StatusCode.ERROR))
            raise
        finally:
            span.end()

    def end(self, request_id: str, outcome: str) -> None:
        self._span.set_attribute("edge_rag.request_id", request_id)
        self._span.set_attribute("rpc.response.status_code", outcome)
        if outcome != "OK":
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()


class _StageSpan:
    def __init__(self, span: Span) -> None:
        self._span = span

    def note(self, attributes: Mapping[str, AttributeValue]) -> None:
        self._span.set_attributes(dict(attributes))
