"""Opening a stage on the provider its profile wants, or on the next; never silently."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from edge_rag.core.placement import Placement, Stage, WhenUnmet
from edge_rag.device.profile import ProviderChoice, StageProfile
from edge_rag.errors import ConfigurationError, ProviderUnavailable

_Opened = TypeVar("_Opened")


def place(
    stage: Stage, wanted: StageProfile, open_on: Callable[[ProviderChoice], _Opened]
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
