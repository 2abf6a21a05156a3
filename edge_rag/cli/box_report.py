"""The box, as checks for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from edge_rag.cli.health_checks import Check, Verdict
from edge_rag.config.settings import Settings
from edge_rag.device.advice import advise
from edge_rag.device.choosing import Choice
from edge_rag.device.facts import DeviceFacts
from edge_rag.device.memory_plan import MemoryPlan
from edge_rag.device.obstacles import outlook
from edge_rag.device.profile import DeviceProfile
from edge_rag.errors import EdgeRagError

if TYPE_CHECKING:
    from edge_rag.bootstrap.device import Box

_MIB = 1 << 20
_GIB = 1 << 30


def box_checks(box: Box, settings: Settings) -> Iterator[Check]:
    """Yields what was found, which profile was chosen and why, where stages run, and what the memory is used for."""
    first, *others = facts_lines(box.facts)
    yield Check("board", Verdict.OK, first, lines=tuple(others))
    if isinstance(box.choice, EdgeRagError):
        yield Check("profile", Verdict.FAIL, str(box.choice), "name a profile with the key `profile`")
        return
    profile = box.choice.profile
    threads = settings.threads or profile.threads(box.facts)
    over = f", with keys of {settings.profile_file}" if settings.profile_file is not None else ""
    yield Check(
        "profile",
        Verdict.OK,
        f"{profile.name}{over}, {threads} threads: {box.choice.why}",
        lines=rule_lines(box.choice),
    )
    yield from _stages(profile, box.facts)
    if isinstance(box.plan, EdgeRagError):
        yield Check("memory", Verdict.FAIL, str(box.plan))
    else:
        verdict = Verdict.WARN if box.plan.halvings else Verdict.OK
        first, *others = plan_lines(box.plan)
        yield Check("memory", verdict, first, lines=tuple(others))
    plan = None if isinstance(box.plan, EdgeRagError) else box.plan
    advice = advise(box.facts, profile, plan)
    if advice:
        yield Check("faster", Verdict.OK, "what would make this box faster:", lines=advice)


def facts_lines(facts: DeviceFacts) -> list[str]:
    """Returns the facts for people."""
    processor, memory = facts.processor, facts.memory
    kinds = [core.cluster for core in processor.usable]
    apart = "+".join(str(kinds.count(kind)) for kind in sorted(set(kinds)))
    lines = [facts.board.model or processor.model or facts.machine]
    lines.append(f"{len(processor.usable)} cores" + (f" ({apart}, fastest first)" if len(set(kinds)) > 1 else ""))
    lines.append(f"{memory.total_bytes / _GIB:.1f} GiB of memory, {memory.usable_bytes / _GIB:.1f} to be had")
    if memory.tightest is not None:
        lines.append(f"{memory.tightest.file} allows {memory.tightest.limit_bytes >> 20} MiB")
    if facts.drivers.accelerators:
        lines.append(", ".join(sorted(each.value for each in facts.drivers.accelerators)))
    lines.append("providers " + ", ".join(sorted(each.value for each in facts.providers)))
    if facts.drivers.libraries:
        lines.append(", ".join(f"{name} {version}".strip() for name, version in facts.drivers.libraries.items()))
    if facts.thermal:
        hottest = max(facts.thermal, key=lambda zone: zone.celsius)
        lines.append(f"{hottest.celsius:.0f} degrees ({hottest.name})")
    if facts.board.power_mode is not None:
        lines.append(f"power mode {facts.board.power_mode}")
    return lines


def rule_lines(choice: Choice) -> tuple[str, ...]:
    """Returns what came of each rule, for people."""
    return tuple(
        f"{'+' if finding.holds else '-'} {finding.profile} ({finding.rank}): "
        + "; ".join(each.text for each in finding.conditions if each.holds or not finding.holds)
        for finding in choice.findings
    )


def plan_lines(plan: MemoryPlan) -> list[str]:
    """Returns a memory plan for people, to the megabyte."""
    sizes = plan.sizes
    return [
        f"{plan.planned_bytes >> 20} of {plan.budget_bytes >> 20} MiB planned",
        *(
            f"{item.name} {-(-item.bytes // _MIB)}" + (f" ({item.detail})" if item.detail else "")
            for item in plan.items
        ),
        f"{plan.spare_bytes >> 20} left",
        f"{sizes.slots} slots, {sizes.step_tokens} tokens a step",
        *([f"halved {plan.halvings} times to fit"] if plan.halvings else []),
    ]


def box_object(box: Box) -> dict[str, Any]:
    """Returns everything about the box."""
    choice, plan = box.choice, box.plan
    return {
        "facts": facts_object(box.facts),
        "choice": None if isinstance(choice, EdgeRagError) else choice_object(choice),
        "stages": {} if isinstance(choice, EdgeRagError) else _stage_objects(choice.profile, box.facts),
        "memory": None if isinstance(plan, EdgeRagError) else plan_object(plan),
        "advice": []
        if isinstance(choice, EdgeRagError)
        else list(advise(box.facts, choice.profile, None if isinstance(plan, EdgeRagError) else plan)),
    }


def facts_object(facts: DeviceFacts) -> dict[str, Any]:
    """Returns the facts."""
    processor, memory, drivers = facts.processor, facts.memory, facts.drivers
    return {
        "machine": facts.machine,
        "processor": processor.model,
        "features": sorted(processor.features),
        "cores": [
            {"number": core.number, "capacity": core.capacity, "cluster": core.cluster, "governor": core.governor}
            for core in processor.cores
        ],
        "allowed_cores": sorted(processor.allowed),
        "cpu_quota": processor.cpu_quota,
        "virtual": processor.virtual,
        "memory_bytes": memory.total_bytes,
        "available_bytes": memory.usable_bytes,
        "swap_bytes": memory.swap_bytes,
        "swap_devices": list(memory.swap_devices),
        "cgroup_limits": [
            {"file": limit.file, "limit_bytes": limit.limit_bytes, "used_bytes": limit.used_bytes}
            for limit in memory.limits
        ],
        "model": facts.board.model,
        "compatible": list(facts.board.compatible),
        "jetson_release": facts.board.jetson_release,
        "power_mode": facts.board.power_mode,
        "accelerators": sorted(each.value for each in drivers.accelerators),
        "without_driver": list(drivers.without_driver),
        "nodes": list(drivers.nodes),
        "libraries": dict(drivers.libraries),
        "packages": dict(drivers.packages),
        "nvidia_driver": drivers.driver,
        "built_for_cuda": drivers.built_for_cuda,
        "providers": sorted(each.value for each in facts.providers),
        "thermal": [
            {
                "name": zone.name,
                "celsius": zone.celsius,
                "passive_celsius": zone.passive_celsius,
                "critical_celsius": zone.critical_celsius,
            }
            for zone in facts.thermal
        ],
    }


def choice_object(choice: Choice) -> dict[str, Any]:
    """Returns the choice, rule by rule."""
    return {
        "profile": choice.profile.name,
        "named": choice.named,
        "why": choice.why,
        "rules": [
            {
                "profile": finding.profile,
                "rank": finding.rank,
                "holds": finding.holds,
                "conditions": [{"holds": each.holds, "text": each.text} for each in finding.conditions],
            }
            for finding in choice.findings
        ],
    }


def plan_object(plan: MemoryPlan) -> dict[str, Any]:
    """Returns a memory plan."""
    return {
        "budget_bytes": plan.budget_bytes,
        "planned_bytes": plan.planned_bytes,
        "spare_bytes": plan.spare_bytes,
        "items": [{"name": item.name, "bytes": item.bytes, "detail": item.detail} for item in plan.items],
        "pages": plan.pages,
        "slots": plan.sizes.slots,
        "step_tokens": plan.sizes.step_tokens,
        "halvings": plan.halvings,
    }


def _stages(profile: DeviceProfile, facts: DeviceFacts) -> Iterator[Check]:
    for stage, wanted in profile.stages.items():
        provider, why = outlook(stage, wanted, facts)
        first = wanted.providers[0].provider
        name = f"{stage.value} on"
        if provider is first:
            yield Check(name, Verdict.OK, f"{first.value}: {why}")
        elif provider is None or wanted.when_unmet.value == "stop":
            yield Check(name, Verdict.FAIL, why, f"see `edge-rag profile test`; stages.{stage.value} in a profile file")
        else:
            detail = f"{provider.value} instead of {first.value}: {why}"
            yield Check(name, Verdict.WARN, detail, "`edge-rag profile test` opens each stage and says what happens")


def _stage_objects(profile: DeviceProfile, facts: DeviceFacts) -> dict[str, Any]:
    objects: dict[str, Any] = {}
    for stage, wanted in profile.stages.items():
        provider, why = outlook(stage, wanted, facts)
        objects[stage.value] = {
            "wanted": wanted.providers[0].provider.value,
            "expected": None if provider is None else provider.value,
            "why": why,
            "when_unmet": wanted.when_unmet.value,
        }
    return objects
