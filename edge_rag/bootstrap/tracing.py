"""What the daemon tells others about itself, out of the settings."""

from __future__ import annotations

from edge_rag.config.sections import TraceSettings
from edge_rag.errors import ConfigurationError
from edge_rag.telemetry.tracing import UNTRACED, Traces


def make_traces(wanted: TraceSettings) -> Traces:
    """Makes what traces calls.

    Raises:
        ConfigurationError: Traces are wanted and the extra for them is not installed.
    """
    if wanted.endpoint is None:
        return UNTRACED
    try:
        # An extra, and half a second of importing.
        from edge_rag.telemetry.otlp import OtlpTraces
    except ImportError as error:
        raise ConfigurationError(
            f"traces.endpoint: {error.name} is missing; install it with pip install 'edge-rag[traces]'"
        ) from error
    return OtlpTraces(wanted.endpoint, wanted.ratio)
