"""How generators are opened on a provider, for the daemon and for trials alike.

What a daemon says in its log of where it runs and what it planned.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import structlog

from edge_rag.bootstrap.encoders import on_cpu
from edge_rag.core.monitoring.status import ModelInUse
from edge_rag.core.placement import Precision, Provider
from edge_rag.device.choosing import Choice
from edge_rag.device.memory_plan import MemoryPlan
from edge_rag.device.profile import ProviderChoice
from edge_rag.engine.ports import ModelRunner
from edge_rag.errors import ConfigurationError, ProviderUnavailable
from edge_rag.runtime.decoder.cuda.decoder import CudaDecoder
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder


def paged_opener(folder: Path, pages: int) -> Callable[[ProviderChoice], ModelRunner]:
    """Returns what opens a generator with so many KV pages on a provider."""

    def open_on(choice: ProviderChoice) -> ModelRunner:
        match choice.provider:
            case Provider.CPU:
                return PagedDecoder.open(folder, pages)
            case Provider.CUDA if choice.precision is Precision.FP16:
                return CudaDecoder.open(folder, pages, choice.options)
            case Provider.CUDA:
                raise ConfigurationError(
                    f"profile: generator.cuda.precision is {choice.precision.value}, generators run there in "
                    f"{Precision.FP16.value}"
                )
        raise ProviderUnavailable(choice.provider.value, "generators have no form for it in this version")

    return open_on


def serial_opener(folder: Path, context: int) -> Callable[[ProviderChoice], ModelRunner]:
    """Returns what opens a generator that runs as it came, for sequences so long."""

    def open_serial() -> ModelRunner:
        # Imported where it is needed: it brings a second copy of ONNX Runtime into the process.
        from edge_rag.runtime.decoder.serial_decoder import SerialDecoder

        return SerialDecoder.open(folder, context)

    return on_cpu(open_serial)


_MIB = 1 << 20

log = structlog.get_logger()


def say_choice(choice: Choice) -> None:
    """Says which profile is in force, and why."""
    log.info("profile", name=choice.profile.name, reason=choice.reason)


def say_plan(plan: MemoryPlan) -> None:
    """Says what the memory is used for; a warning where it is short."""
    say = log.warning if plan.shrink_steps else log.info
    say(
        "memory is short; slots, steps and batches are halved to fit" if plan.shrink_steps else "memory planned",
        budget_mib=plan.budget_bytes // _MIB,
        planned_mib=-(-plan.planned_bytes // _MIB),
        kv_pages=plan.pages,
        slots=plan.sizes.slots,
        step_tokens=plan.sizes.step_tokens,
        shrink_steps=plan.shrink_steps,
        uses={item.name: -(-item.bytes // _MIB) for item in plan.items},
    )


def say_placement(model: ModelInUse) -> None:
    """Says where a model runs; a warning where that is not where the profile puts it first."""
    placement = model.placement
    said = {"stage": placement.stage.value, "model": model.name, "provider": placement.used.value}
    if placement.is_fallback:
        log.warning("stage runs on a fallback provider", **said, wanted=placement.wanted.value, reason=placement.reason)
    else:
        log.info("stage runs on the preferred provider", **said)
