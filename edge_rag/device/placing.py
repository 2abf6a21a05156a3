"""Opening a stage on the provider its profile wants, or on the next; never silently.

Whether a machine has what an execution provider needs, as far as can be seen without loading anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from edge_rag.core.placement import ModelStage, Placement, Provider, WhenUnmet
from edge_rag.device.facts import Accelerator, DeviceFacts
from edge_rag.device.profile import ProviderChoice, StageProfile
from edge_rag.errors import ConfigurationError, ProviderUnavailable

_Opened = TypeVar("_Opened")


def place(
    stage: ModelStage, wanted: StageProfile, open_on: Callable[[ProviderChoice], _Opened]
) -> tuple[_Opened, Placement]:
    """Opens a stage on the first provider that it can be opened on.

    Args:
        stage: Which one.
        wanted: Its providers, in order, and what to do where the first cannot be had.
        open_on: Opens it on one; raises ProviderUnavailable where that provider cannot be had.

    Returns:
        What was opened, and where it runs.

    Raises:
        ConfigurationError: The wanted provider cannot be had and the profile says to stop, or none of them can be had;
            has every reason.
    """
    first = wanted.providers[0]
    reasons: list[str] = []
    for choice in wanted.providers:
        try:
            opened = open_on(choice)
        except ProviderUnavailable as error:
            reasons.append(str(error))
            if wanted.when_unmet is WhenUnmet.STOP:
                break
        else:
            why = "; ".join(reasons) or "first of the profile"
            return opened, Placement(stage, first.provider, choice.provider, why, choice.precision)
    advice = (
        'set stages.{0}.when_unmet = "step-down" in a profile file to go on with the next'
        if wanted.when_unmet is WhenUnmet.STOP and len(wanted.providers) > 1
        else "name another with stages.{0}.providers in a profile file"
    )
    raise ConfigurationError(f"profile: {stage.value}: {'; '.join(reasons)}; {advice.format(stage.value)}")


PACKAGES: Final = {
    Provider.CUDA: "onnxruntime-gpu",
    Provider.TENSORRT: "onnxruntime-gpu",
    Provider.QNN: "onnxruntime-qnn",
    Provider.OPENVINO: "onnxruntime-ep-openvino",
}
"""What is installed to have a provider."""

_LIBRARIES: Final = {Provider.CUDA: ("libcudart",), Provider.TENSORRT: ("libcudart", "libnvinfer")}
_ACCELERATORS: Final = {
    Provider.CUDA: (Accelerator.NVIDIA_GPU, Accelerator.TEGRA_GPU),
    Provider.TENSORRT: (Accelerator.NVIDIA_GPU, Accelerator.TEGRA_GPU),
    Provider.QNN: (Accelerator.QUALCOMM_NPU,),
    Provider.OPENVINO: (Accelerator.INTEL_NPU, Accelerator.INTEL_GPU),
}

_CARD: Final = "/dev/nvidia0"
_SIMULATED: Final = frozenset({"x86_64", "AMD64"})
"""Where the QNN plugin brings a simulator of the NPU."""


def obstacles(provider: Provider, facts: DeviceFacts) -> tuple[str, ...]:
    """Returns what is in the way of a provider, for people; empty where nothing can be seen."""
    if provider is Provider.CPU:
        return ()
    found: list[str] = []
    if provider not in facts.providers:
        found.append(f"{PACKAGES[provider]} is not installed")
    wanted = _ACCELERATORS[provider]
    simulated = provider is Provider.QNN and facts.machine in _SIMULATED
    if facts.drivers.accelerators.isdisjoint(wanted) and not simulated:
        found.append(f"there is no {' or '.join(each.value for each in wanted)} with its driver")
    card = Accelerator.NVIDIA_GPU
    if card in wanted and card in facts.drivers.accelerators and _CARD not in facts.drivers.nodes:
        found.append(f"{_CARD} cannot be seen from here (for a service, see systemd/drop-ins)")
    missing = [library for library in _LIBRARIES.get(provider, ()) if library not in facts.drivers.libraries]
    wanted_cuda, cuda = facts.drivers.built_for_cuda, facts.drivers.libraries.get("libcudart", "")
    if "libcudart" in _LIBRARIES.get(provider, ()) and wanted_cuda and cuda and _major(cuda) != _major(wanted_cuda):
        found.append(f"CUDA {cuda} is there, this ONNX Runtime was built for {wanted_cuda}")
    if missing:
        found.append(f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not found")
    return tuple(found)


def _major(version: str) -> str:
    return version.split(".")[0]


def outlook(stage: ModelStage, wanted: StageProfile, facts: DeviceFacts) -> tuple[Provider | None, str]:
    """Says where a stage is likely to run.

    Args:
        stage: Which one.
        wanted: Its providers, in order.
        facts: What was read off the machine.

    Returns:
        The first provider with nothing in its way, None where all have something; and why, for people.
    """
    reasons: list[str] = []
    for choice in wanted.providers:
        found = obstacles(choice.provider, facts)
        if not found:
            return choice.provider, "; ".join(reasons) or f"first of the profile for the {stage.value}"
        reasons.append(f"{choice.provider.value}: {', '.join(found)}")
    return None, "; ".join(reasons)
