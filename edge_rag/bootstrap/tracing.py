"""Makes the tracer from the settings."""

from __future__ import annotations

from edge_rag.config.sections import TraceSettings
from edge_rag.errors import ConfigurationError
from edge_rag.telemetry.metrics.calls import UNTRACED, Traces


def make_traces(wanted: TraceSettings) -> Traces:
    """Makes the tracer.

    Raises:
        ConfigurationError: Tracing is configured and the extra for it is not installed.
    """
    if wanted.endpoint is None:
        return UNTRACED
    try:
        # An optional extra, which takes half a second to import.
        from edge_rag.telemetry.otlp import OtlpTraces
    except ImportError as error:
        raise ConfigurationError(
            f"traces.endpoint: {error.name} is missing; install it with pip install 'edge-rag[traces]'"
        ) from error
    return OtlpTraces(wanted.endpoint)
