"""Logs the decisions of a start: device profile, memory plan and where each stage runs."""

from __future__ import annotations

from typing import Final

import structlog

from edge_rag.core.monitoring.status import ModelInUse
from edge_rag.device.memory_plan import MemoryPlan
from edge_rag.device.profile import ProfileChoice
from edge_rag.model_store.store import REMOVED_GENERATORS

_MIB: Final = 1 << 20

log = structlog.get_logger()


def log_profile(choice: ProfileChoice) -> None:
    log.info("profile", name=choice.profile.name, reason=choice.reason)


def log_memory_plan(plan: MemoryPlan) -> None:
    """Logs the memory plan; as a warning where memory is short."""
    write = log.warning if plan.shrink_steps else log.info
    write(
        "memory is short; slots, steps and batches are halved to fit" if plan.shrink_steps else "memory planned",
        budget_mib=plan.budget_bytes // _MIB,
        planned_mib=-(-plan.planned_bytes // _MIB),
        kv_pages=plan.pages,
        slots=plan.sizes.slots,
        step_tokens=plan.sizes.step_tokens,
        shrink_steps=plan.shrink_steps,
        uses={item.name: -(-item.bytes // _MIB) for item in plan.items},
    )


def log_ignored_generator(name: str) -> None:
    log.warning(
        "a generator is named that no longer comes along and is ignored", model=name, advice=REMOVED_GENERATORS[name]
    )


def log_placement(model: ModelInUse) -> None:
    """Logs where a model runs; as a warning where that is not the provider that the profile prefers."""
    placement = model.placement
    fields = {"stage": placement.stage.value, "model": model.name, "provider": placement.used.value}
    if placement.is_fallback:
        log.warning(
            "stage runs on a fallback provider", **fields, wanted=placement.wanted.value, reason=placement.reason
        )
    else:
        log.info("stage runs on the preferred provider", **fields)
