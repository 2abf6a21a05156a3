"""What a daemon with given settings would find and plan on this box, without starting one.

The device profile that settings ask for.

What holds the daemon back, out of the settings and the device profile.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from edge_rag.bootstrap.memory_planner import MemoryPlanner
from edge_rag.config.sections import ThrottleSettings
from edge_rag.config.settings import Settings
from edge_rag.device.choosing import Choice, choose
from edge_rag.device.facts import DeviceFacts
from edge_rag.device.memory_plan import MemoryPlan
from edge_rag.device.probe import probe
from edge_rag.device.profile import DeviceProfile
from edge_rag.device.profile_file import builtin_profiles, overridden
from edge_rag.errors import EdgeRagError
from edge_rag.model_store.roles import fill_roles, store_of
from edge_rag.runtime.session.sessions import provider_devices
from edge_rag.throttle.board_monitor import BoardWatch, Levers
from edge_rag.throttle.memory_monitor import MemoryShedder, MemoryWatch
from edge_rag.throttle.policy import HeatPolicy, Throttle


def choose_profile(settings: Settings, facts: DeviceFacts) -> Choice:
    """Chooses among the profiles that came along, and lays the operator's file over the chosen one.

    Raises:
        ConfigurationError: There is no such profile, nothing is known of the machine, or the file is unusable.
    """
    choice = choose(settings.profile, facts, builtin_profiles())
    if settings.profile_file is None:
        return choice
    return replace(choice, profile=overridden(choice.profile, settings.profile_file))


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


def make_board_watch(wanted: ThrottleSettings, profile: DeviceProfile, slots: int, levers: Levers) -> BoardWatch:
    """Makes what looks at the board, not started yet; settings win over the profile.

    Args:
        wanted: Checked settings.
        profile: Device profile in force.
        slots: Requests that run at once where nothing is held back.
        levers: What is moved and told.
    """
    thermal = profile.thermal
    throttle_c, resume_c = thermal.throttle_celsius, thermal.resume_celsius
    if wanted.celsius is not None and wanted.resume_celsius is not None:
        throttle_c, resume_c = wanted.celsius, wanted.resume_celsius
    heat = HeatPolicy(throttle_c, throttle_c - resume_c) if wanted.heat else None
    watts = thermal.power_budget_watts if wanted.watts is None else wanted.watts
    least = min(1.0, thermal.min_slots / slots)
    return BoardWatch(wanted.root, Throttle(least, heat, watts), levers, wanted.interval_seconds)


def make_memory_watch(wanted: ThrottleSettings, relief: MemoryShedder) -> MemoryWatch | None:
    """Makes what looks at the memory, not started yet; None where nothing is to give way."""
    return MemoryWatch(wanted.root, relief, wanted.interval_seconds) if wanted.memory else None
