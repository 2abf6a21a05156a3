"""The daemon's metrics, with one sample of each."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from edge_rag.core.monitoring.resources import (
    MemoryPressureState,
    PassageSources,
    Temperature,
    Throttling,
    TokenVectorUse,
)
from edge_rag.core.monitoring.status import EngineStats, ModelInUse, RemoteInUse, StageSnapshot
from edge_rag.core.placement import ModelStage, Placement, Precision, Provider
from edge_rag.telemetry.activity import Activity, Latencies
from edge_rag.telemetry.engine_observer import EngineMetrics
from edge_rag.telemetry.metrics.calls import Metrics
from edge_rag.telemetry.metrics.components import (
    AlertMetrics,
    BoardMetrics,
    LibraryMetrics,
    OffloadMetrics,
    PlacementMetrics,
    StageMetrics,
    TokenVectorMetrics,
)
from edge_rag.telemetry.usage import UsageMeter

_PRESSURE = MemoryPressureState(1 << 30, 0.1, ())
_THROTTLING = Throttling(0.5, (), (), 10.0, 0.5, 100.0)
_REMOTE = RemoteInUse("office", "edge-rag", "10.0.0.9:7421", "closed", 0, 0, 0, 0, "", None)
_STATS = EngineStats(slots=1, slots_busy=1, pages=1, pages_used=1, pages_cached=1, page_tokens=1)


def registry() -> CollectorRegistry:
    """Returns a registry in which every series of a daemon has a sample."""
    made = CollectorRegistry()
    calls = Metrics(made, Latencies())
    engine = EngineMetrics(made)
    engine.read_from(lambda: _STATS, lambda: 0)
    usage = UsageMeter()
    usage.refused("client")
    made.register(usage)
    activity = Activity()
    with activity.working("retriever", "cpu"):
        made.register(
            BoardMetrics(activity, lambda: (Temperature("cpu-thermal", 50.0),), lambda: _THROTTLING, lambda: _PRESSURE)
        )
    made.register(StageMetrics(lambda: (StageSnapshot("retriever", 1, 2, 1, 1, 1),)))
    made.register(OffloadMetrics(lambda: (_REMOTE,)))
    made.register(LibraryMetrics(None))
    made.register(AlertMetrics(lambda: (), lambda: 0))
    made.register(TokenVectorMetrics(PassageSources, lambda: TokenVectorUse(0, 0, 0)))
    placement = Placement(ModelStage.EMBEDDER, Provider.QNN, Provider.CPU, "", Precision.MODEL)
    made.register(PlacementMetrics(lambda: (ModelInUse("minilm", "", placement),)))
    for part in (calls, engine):
        for metric in vars(part).values():
            if getattr(metric, "_labelnames", ()) and not getattr(metric, "_labelvalues", ()):
                metric.labels(*metric._labelnames)
    return made


def families() -> Iterator[tuple[str, Metric, tuple[str, ...]]]:
    """Yields each metric: the name that Prometheus shows, the metric, and its labels; sorted by name."""
    found = {}
    for family in registry().collect():
        labels = dict.fromkeys(label for sample in family.samples for label in sample.labels if label != "le")
        found[family.name + ("_total" if family.type == "counter" else "")] = (family, tuple(labels))
    for name in sorted(found):
        yield (name, *found[name])
