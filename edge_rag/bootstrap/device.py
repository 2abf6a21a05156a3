"""What a daemon with given settings would find and plan on this box, without starting one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from edge_rag.bootstrap.memory_planner import MemoryPlanner
from edge_rag.bootstrap.profiles import choose_profile
from edge_rag.config.settings import Settings
from edge_rag.device.choosing import Choice
from edge_rag.device.facts import DeviceFacts
from edge_rag.device.memory_plan import MemoryPlan
from edge_rag.device.probing.probe import probe
from edge_rag.errors import EdgeRagError
from edge_rag.model_store.roles import fill_roles, store_of
from edge_rag.runtime.session.provider_devices import provider_devices


@dataclass(frozen=True, slots=True)
class Box:
    """What was found and planned.

    Attributes:
        facts: What was read off the machine.
        choice: The profile, or why there is none.
        plan: What the memory would be used for, or why there is no plan.
    """

    facts: DeviceFacts
    choice: Choice | EdgeRagError
    plan: MemoryPlan | EdgeRagError


def look_at_box(settings: Settings, held_bytes: int = 0) -> Box:
    """Reads the facts, chooses the profile and plans the memory.

    Args:
        settings: Checked settings.
        held_bytes: Memory that a daemon with these settings has now, and would give back before another one starts.
    """
    facts = probe(provider_devices())
    memory = facts.memory
    facts = replace(facts, memory=replace(memory, own_bytes=memory.own_bytes + held_bytes))
    try:
        choice = choose_profile(settings, facts)
    except EdgeRagError as error:
        return Box(facts, error, error)
    try:
        folders = fill_roles(settings, store_of(settings))
        plan = MemoryPlanner(settings, choice.profile, facts, folders).plan(folders.generator)
    except EdgeRagError as error:
        return Box(facts, choice, error)
    return Box(facts, choice, plan)
