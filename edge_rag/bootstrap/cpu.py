"""Opening a stage on processor cores, the only provider there is a path for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from edge_rag.core.placement import Provider
from edge_rag.device.profile import ProviderChoice
from edge_rag.errors import ProviderUnavailable

_Opened = TypeVar("_Opened")


def on_cpu(open_stage: Callable[[], _Opened]) -> Callable[[ProviderChoice], _Opened]:
    """Makes an opener for ``place`` of one that needs no choice; it refuses every provider but the CPU."""

    def open_on(choice: ProviderChoice) -> _Opened:
        if choice.provider is not Provider.CPU:
            raise ProviderUnavailable(choice.provider.value, "this version runs this stage on processor cores only")
        return open_stage()

    return open_on
