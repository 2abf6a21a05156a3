"""Places stages on providers: opens the first that works, and predicts it from the facts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from edge_rag.core.placement import ModelStage, OnUnavailable, Placement, Provider
from edge_rag.device.facts import DeviceFacts
from edge_rag.device.profile import ProviderChoice, StageProfile
from edge_rag.errors import ConfigurationError, ProviderUnavailable
from edge_rag.runtime.session.providers import SPECS

_Opened = TypeVar("_Opened")

_CUDA: Final = "libcudart"


def place(
    stage: ModelStage, wanted: StageProfile, open_on: Callable[[ProviderChoice], _Opened]
) -> tuple[_Opened, Placement]:
    """Opens a stage on the first of its providers that works.

    Args:
        wanted: Its providers, preferred first, and what to do where the first is unavailable.
        open_on: Opens it on a provider; raises ProviderUnavailable where that does not work.

    Raises:
        ConfigurationError: The preferred provider is unavailable and the profile says to stop, or all are; has every
            reason.
    """
    first = wanted.providers[0]
    reasons: list[str] = []
    for choice in wanted.providers:
        try:
            opened = open_on(choice)
        except ProviderUnavailable as error:
            reasons.append(str(error))
            if wanted.on_unavailable is OnUnavailable.STOP:
                break
        else:
            why = "; ".join(reasons) or "first of the profile"
            return opened, Placement(stage, first.provider, choice.provider, why, choice.precision)
    advice = (
        'set stages.{0}.on_unavailable = "fallback" in a profile file to go on with the next'
        if wanted.on_unavailable is OnUnavailable.STOP and len(wanted.providers) > 1
        else "name another with stages.{0}.providers in a profile file"
    )
    raise ConfigurationError(f"profile: {stage.value}: {'; '.join(reasons)}; {advice.format(stage.value)}")


def device_name(placement: Placement) -> str:
    used = placement.used
    return SPECS[used].device if isinstance(used, Provider) else used.value


def obstacles(provider: Provider, facts: DeviceFacts) -> tuple[str, ...]:
    """Returns the missing requirements of a provider on a machine, for people; loads nothing."""
    if provider is Provider.CPU:
        return ()
    spec, drivers = SPECS[provider], facts.drivers
    found: list[str] = []
    if provider not in facts.providers:
        found.append(f"{spec.distribution} is not installed")
    if drivers.accelerators.isdisjoint(spec.accelerators) and facts.machine not in spec.simulated_on:
        found.append(f"there is no {' or '.join(each.name for each in spec.accelerators)} with its driver")
    found += [
        f"{each.node} cannot be seen from here (for a service, see systemd/drop-ins)"
        for each in spec.accelerators
        if each.node is not None and each in drivers.accelerators and each.node not in drivers.nodes
    ]
    missing = [library for library in spec.libraries if library not in drivers.libraries]
    wanted_cuda, cuda = drivers.built_for_cuda, drivers.libraries.get(_CUDA, "")
    if _CUDA in spec.libraries and wanted_cuda and cuda and _major(cuda) != _major(wanted_cuda):
        found.append(f"CUDA {cuda} is there, this ONNX Runtime was built for {wanted_cuda}")
    if missing:
        found.append(f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not found")
    return tuple(found)


def _major(version: str) -> str:
    return version.split(".")[0]


def expected_provider(stage: ModelStage, wanted: StageProfile, facts: DeviceFacts) -> tuple[Provider | None, str]:
    """Predicts where a stage will run.

    Args:
        wanted: Its providers, preferred first.

    Returns:
        The first provider without obstacles, None where all have some; and the reason, for people.
    """
    reasons: list[str] = []
    for choice in wanted.providers:
        found = obstacles(choice.provider, facts)
        if not found:
            return choice.provider, "; ".join(reasons) or f"first of the profile for the {stage.value}"
        reasons.append(f"{choice.provider.value}: {', '.join(found)}")
    return None, "; ".join(reasons)
