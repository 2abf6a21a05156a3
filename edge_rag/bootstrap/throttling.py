"""What holds the daemon back, out of the settings and the device profile."""

from __future__ import annotations

from edge_rag.config.throttling import ThrottleSettings
from edge_rag.device.profile import DeviceProfile
from edge_rag.throttle.board_monitor import BoardWatch, Levers
from edge_rag.throttle.burdens import HeatPolicy
from edge_rag.throttle.memory_monitor import MemoryWatch, Relief
from edge_rag.throttle.policy import Throttle


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


def make_memory_watch(wanted: ThrottleSettings, relief: Relief) -> MemoryWatch | None:
    """Makes what looks at the memory, not started yet; None where nothing is to give way."""
    return MemoryWatch(wanted.root, relief, wanted.interval_seconds) if wanted.memory else None
