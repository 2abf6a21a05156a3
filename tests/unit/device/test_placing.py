from collections.abc import Callable

import pytest

from edge_rag.core.placement import ModelStage, OnUnavailable, Placement, Precision, Provider
from edge_rag.device.placing import place
from edge_rag.device.profile import ProviderChoice, StageProfile
from edge_rag.errors import ConfigurationError, ProviderUnavailable

CHAIN = (
    ProviderChoice(Provider.TENSORRT, Precision.FP16, {}),
    ProviderChoice(Provider.CUDA, Precision.FP16, {}),
    ProviderChoice(Provider.CPU, Precision.MODEL, {}),
)
REASONS = {Provider.TENSORRT: "no libnvinfer", Provider.CUDA: "CUDA 12 is there, 13 is needed", Provider.CPU: "broken"}


def open_with(*available: Provider) -> Callable[[ProviderChoice], str]:
    def open_on(choice: ProviderChoice) -> str:
        if choice.provider in available:
            return f"opened on {choice.provider.value}"
        raise ProviderUnavailable(choice.provider.value, REASONS[choice.provider])

    return open_on


@pytest.mark.parametrize("on_unavailable", OnUnavailable)
def test_a_stage_runs_on_its_preferred_provider_where_that_works(on_unavailable: OnUnavailable) -> None:
    opened, placement = place(ModelStage.EMBEDDER, StageProfile(CHAIN, on_unavailable), open_with(*Provider))
    assert opened == "opened on tensorrt"
    assert placement == Placement(
        ModelStage.EMBEDDER, Provider.TENSORRT, Provider.TENSORRT, "first of the profile", Precision.FP16
    )
    assert not placement.is_fallback


def test_a_fallback_has_the_reason_of_every_provider_before() -> None:
    _, placement = place(ModelStage.GENERATOR, StageProfile(CHAIN, OnUnavailable.FALLBACK), open_with(Provider.CPU))
    assert (placement.wanted, placement.used, placement.precision) == (
        Provider.TENSORRT,
        Provider.CPU,
        Precision.MODEL,
    )
    assert placement.is_fallback
    assert (
        placement.reason
        == "tensorrt cannot be used: no libnvinfer; cuda cannot be used: CUDA 12 is there, 13 is needed"
    )


def test_a_profile_that_stops_tries_no_other_provider_and_names_the_key() -> None:
    with pytest.raises(ConfigurationError, match=r"embedder: tensorrt .*no libnvinfer; set stages\.embedder\.on_unav"):
        place(ModelStage.EMBEDDER, StageProfile(CHAIN, OnUnavailable.STOP), open_with(Provider.CPU))


def test_a_stage_that_none_can_run_stops_with_every_reason() -> None:
    with pytest.raises(ConfigurationError, match=r"no libnvinfer; cuda .*13 is needed; cpu .*broken; name another"):
        place(ModelStage.EMBEDDER, StageProfile(CHAIN, OnUnavailable.FALLBACK), open_with())
