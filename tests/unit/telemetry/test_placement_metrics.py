from prometheus_client import CollectorRegistry

from edge_rag.core.monitoring.status import ModelInUse
from edge_rag.core.placement import ModelStage, Placement, Precision, Provider
from edge_rag.telemetry.metrics.components import PlacementMetrics


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
