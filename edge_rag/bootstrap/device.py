"""The device of a daemon: facts, profile and memory plan; and the monitors that watch the device."""

from __future__ import annotations

from dataclasses import dataclass, replace

from edge_rag.bootstrap.memory_planner import MemoryPlanner
from edge_rag.config.sections import ThrottleSettings
from edge_rag.config.settings import Settings
from edge_rag.device.facts import DeviceFacts
from edge_rag.device.memory_plan import MemoryPlan
from edge_rag.device.probe import probe
from edge_rag.device.profile import DeviceProfile, ProfileChoice, builtin_profiles, choose, with_overrides
from edge_rag.errors import EdgeRagError
from edge_rag.model_store.store import fill_roles, store_of
from edge_rag.runtime.session.sessions import provider_devices
from edge_rag.throttle.board_monitor import Actuators, BoardMonitor
from edge_rag.throttle.memory_monitor import MemoryMonitor, MemoryShedder
from edge_rag.throttle.policy import HeatThresholds, ThrottlePolicy


def choose_profile(settings: Settings, facts: DeviceFacts) -> ProfileChoice:
    choice = choose(settings.profile, facts, builtin_profiles())
    if settings.profile_file is None:
        return choice
    return replace(choice, profile=with_overrides(choice.profile, settings.profile_file))


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """The facts and the plan of a daemon with given settings."""

    facts: DeviceFacts
    choice: ProfileChoice | EdgeRagError
    plan: MemoryPlan | EdgeRagError


def inspect_device(settings: Settings, held_bytes: int = 0) -> DeviceReport:
    """Reads the facts, chooses the profile and plans the memory, without starting a daemon.

    Args:
        held_bytes: Memory of a running daemon, which is free before another one starts, bytes.
    """
    facts = probe(provider_devices())
    memory = facts.memory
    facts = replace(facts, memory=replace(memory, own_bytes=memory.own_bytes + held_bytes))
    try:
        choice = choose_profile(settings, facts)
    except EdgeRagError as error:
        return DeviceReport(facts, error, error)
    try:
        folders = fill_roles(settings, store_of(settings))
        plan = MemoryPlanner(settings, choice.profile, facts, folders).plan(folders.generator)
    except EdgeRagError as error:
        return DeviceReport(facts, choice, error)
    return DeviceReport(facts, choice, plan)


def make_board_monitor(
    wanted: ThrottleSettings, profile: DeviceProfile, slots: int, actuators: Actuators
) -> BoardMonitor:
    """Makes the board monitor, not started yet; settings win over the profile.

    Args:
        slots: Slots without throttling.
    """
    thermal = profile.thermal
    throttle_c, resume_c = thermal.throttle_celsius, thermal.resume_celsius
    if wanted.celsius is not None and wanted.resume_celsius is not None:
        throttle_c, resume_c = wanted.celsius, wanted.resume_celsius
    heat = HeatThresholds(throttle_c, throttle_c - resume_c) if wanted.heat else None
    watts = thermal.power_budget_watts if wanted.watts is None else wanted.watts
    least = min(1.0, thermal.min_slots / slots)
    return BoardMonitor(wanted.root, ThrottlePolicy(least, heat, watts), actuators, wanted.interval_seconds)


def make_memory_monitor(wanted: ThrottleSettings, shedder: MemoryShedder) -> MemoryMonitor | None:
    """Makes the memory monitor, not started yet; None where the settings turn it off."""
    return MemoryMonitor(wanted.root, shedder, wanted.interval_seconds) if wanted.memory else None
