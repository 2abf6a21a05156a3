from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import onnxruntime as ort
import pytest

from edge_rag.bootstrap.encoders import EncoderOpener, engine_identity
from edge_rag.core.placement import ModelStage, Precision, Provider
from edge_rag.device.facts import DeviceFacts
from edge_rag.device.profile import ProviderChoice, builtin_profiles
from edge_rag.errors import ConfigurationError, ProviderUnavailable
from edge_rag.runtime.encoder.gpu.encoders import EngineIdentity
from tests.support.accelerators.npu import CROSS_ENCODER, EMBEDDER
from tests.unit.device.recorded_boards import recorded

INSTALLED = {
    Provider.CUDA: "CUDAExecutionProvider" in ort.get_available_providers(),
    Provider.TENSORRT: "TensorrtExecutionProvider" in ort.get_available_providers(),
    Provider.OPENVINO: find_spec("onnxruntime_ep_openvino") is not None,
}


@pytest.fixture
def facts(tmp_path: Path) -> DeviceFacts:
    return recorded("jetson-orin-nano-8g", tmp_path / "board")


def identity(facts: DeviceFacts) -> EngineIdentity:
    return engine_identity(Provider.TENSORRT, facts)


@pytest.mark.parametrize("provider", [Provider.CUDA, Provider.TENSORRT, Provider.OPENVINO, Provider.QNN])
def test_a_precision_that_encoders_do_not_have_there_is_refused_and_those_they_have_are_named(
    provider: Provider, facts: DeviceFacts, tmp_path: Path
) -> None:
    opener = EncoderOpener(tmp_path, lambda _: None, facts)
    choice = ProviderChoice(provider, Precision.INT8, {})
    known = "a16w8" if provider is Provider.QNN else "model or fp16 or fp32"
    for open_on in (opener.embedder(EMBEDDER), opener.reranker(CROSS_ENCODER)):
        with pytest.raises(ConfigurationError, match=f"{provider.value}.precision is int8, .* in {known}"):
            open_on(choice)


def test_another_library_driver_or_gpu_makes_another_identity(facts: DeviceFacts) -> None:
    drivers = facts.drivers
    others = [
        replace(drivers, libraries={**drivers.libraries, "libnvinfer": "99.1"}),
        replace(drivers, libraries={**drivers.libraries, "libcudart": "99.1"}),
        replace(drivers, packages={**drivers.packages, "tensorrt": "99.1"}),
        replace(drivers, driver="999.99"),
        replace(drivers, gpus=("NVIDIA RTX A2000",)),
    ]
    identities = [
        identity(facts),
        *(identity(replace(facts, drivers=each)) for each in others),
    ]
    assert len(set(identities)) == len(identities)


def test_an_unrelated_library_does_not_change_the_identity(facts: DeviceFacts) -> None:
    other = replace(facts.drivers, libraries={**facts.drivers.libraries, "libQnnHtp": "99.1"})
    assert identity(replace(facts, drivers=other)) == engine_identity(Provider.TENSORRT, facts)


@pytest.mark.parametrize("name", ["cuda", "jetson-orin-nano-8g", "jetson-thor", "openvino"])
def test_a_gpu_profile_falls_back_only_because_its_provider_is_not_installed(
    name: str, facts: DeviceFacts, tmp_path: Path
) -> None:
    (profile,) = (profile for profile in builtin_profiles() if profile.name == name)
    opener = EncoderOpener(tmp_path / "compiled", lambda _: None, facts)
    opened = {ModelStage.EMBEDDER: opener.embedder(EMBEDDER), ModelStage.RERANKER: opener.reranker(CROSS_ENCODER)}
    for stage, open_on in opened.items():
        *accelerated, cores = profile.stages[stage].providers
        assert cores.provider is Provider.CPU
        for choice in accelerated:
            if INSTALLED[choice.provider]:
                pytest.skip(f"{choice.provider.value} is installed here")
            with pytest.raises(
                ProviderUnavailable, match=rf"{choice.provider.value} cannot be used: .*install onnxrun"
            ):
                open_on(choice)
        open_on(cores)
