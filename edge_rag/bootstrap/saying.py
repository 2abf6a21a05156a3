"""What a daemon says in its log of where it runs and what it planned."""

from __future__ import annotations

import structlog

from edge_rag.core.monitoring.status import ModelInUse
from edge_rag.device.choosing import Choice
from edge_rag.device.memory_plan import MemoryPlan

_MIB = 1 << 20

log = structlog.get_logger()


def say_choice(choice: Choice) -> None:
    """Says which profile is in force, and why."""
    log.info("profile", name=choice.profile.name, why=choice.why)


def say_plan(plan: MemoryPlan) -> None:
    """Says what the memory is used for; a warning where it is short."""
    say = log.warning if plan.halvings else log.info
    say(
        "memory is short; slots, steps and batches are halved to fit" if plan.halvings else "memory planned",
        budget_mib=plan.budget_bytes // _MIB,
        planned_mib=-(-plan.planned_bytes // _MIB),
        kv_pages=plan.pages,
        slots=plan.sizes.slots,
        step_tokens=plan.sizes.step_tokens,
        halvings=plan.halvings,
        uses={item.name: -(-item.bytes // _MIB) for item in plan.items},
    )


def say_placement(model: ModelInUse) -> None:
    """Says where a model runs; a warning where that is not where the profile puts it first."""
    placement = model.placement
    said = {"stage": placement.stage.value, "model": model.name, "provider": placement.used.value}
    if placement.stepped_down:
        log.warning("a stage stepped down", **said, wanted=placement.wanted.value, why=placement.why)
    else:
        log.info("a stage runs where it was wanted", **said)
