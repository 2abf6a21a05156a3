import sys

import pytest

from edge_rag.bootstrap.tracing import make_traces
from edge_rag.config.sections import TraceSettings
from edge_rag.config.settings import load_settings
from edge_rag.errors import ConfigurationError
from edge_rag.telemetry.metrics.calls import UNTRACED


def test_without_an_endpoint_opentelemetry_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "edge_rag.telemetry.otlp", None)
    assert make_traces(TraceSettings()) is UNTRACED


@pytest.mark.parametrize(
    "missing", ["opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http.trace_exporter"]
)
def test_a_missing_extra_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.delitem(sys.modules, "edge_rag.telemetry.otlp", raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ConfigurationError, match=r"traces.endpoint: .*edge-rag\[traces\]"):
        make_traces(TraceSettings(endpoint="http://127.0.0.1:4318/v1/traces"))


@pytest.mark.parametrize("endpoint", ["127.0.0.1:4318", "grpc://collector:4317", "http://"])
def test_an_endpoint_that_is_not_a_url_is_refused_with_its_key(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    monkeypatch.setenv("EDGE_RAG_TRACES__ENDPOINT", endpoint)
    with pytest.raises(ConfigurationError, match=r"traces\.endpoint"):
        load_settings()
