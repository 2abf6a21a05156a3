from edge_rag.core.placement import Provider
from edge_rag.runtime.session.sessions import provider_devices


def test_the_processor_is_always_among_the_devices_once() -> None:
    assert [device.kind for device in provider_devices() if device.provider is Provider.CPU] == ["cpu"]
