from prometheus_client import CollectorRegistry

from edge_rag.core.monitoring.status import Alert, AlertKind, AlertSeverity, ModelInUse
from edge_rag.core.placement import ModelStage, Placement, Precision, Provider
from edge_rag.telemetry.metrics.components import AlertMetrics, PlacementMetrics


def test_a_stage_that_stepped_down_is_one_and_one_that_did_not_is_zero() -> None:
    registry = CollectorRegistry()
    models = [
        ModelInUse("a", "", Placement(ModelStage.EMBEDDER, Provider.QNN, Provider.CPU, "no plugin", Precision.MODEL)),
        ModelInUse("b", "", Placement(ModelStage.GENERATOR, Provider.CPU, Provider.CPU, "first", Precision.MODEL)),
    ]
    registry.register(PlacementMetrics(lambda: models))
    name = "edge_rag_stage_fallback"
    assert registry.get_sample_value(name, {"stage": "embedder", "wanted": "qnn", "used": "cpu"}) == 1
    assert registry.get_sample_value(name, {"stage": "generator", "wanted": "cpu", "used": "cpu"}) == 0


def test_alerts_are_counted_by_kind_and_severity_and_kinds_without_any_are_zero() -> None:
    registry = CollectorRegistry()
    disk = Alert(AlertKind.DISK, AlertSeverity.CRITICAL, "900 KiB are free", "free some space")
    registry.register(AlertMetrics(lambda: [disk, disk], lambda: 900 << 10))

    counts = {
        (sample.labels["kind"], sample.labels["severity"]): sample.value
        for metric in registry.collect()
        if metric.name == "edge_rag_alerts"
        for sample in metric.samples
    }
    assert {key for key, count in counts.items() if count} == {("disk", "critical")}
    assert counts["disk", "critical"] == 2
    assert {kind for kind, _ in counts} == {"library", "disk", "certificate", "backup", "clock"}
    assert registry.get_sample_value("edge_rag_disk_free_bytes") == 900 << 10
