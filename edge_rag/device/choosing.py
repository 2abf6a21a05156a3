"""Choosing the profile for a machine."""

from __future__ import annotations

from edge_rag.device.facts import DeviceFacts
from edge_rag.device.profile import DeviceProfile
from edge_rag.errors import ConfigurationError


def choose(wanted: str, facts: DeviceFacts, profiles: tuple[DeviceProfile, ...]) -> DeviceProfile:
    """Picks a profile.

    Args:
        wanted: Name of a profile, or ``auto``.
        facts: What was read off the machine.
        profiles: Those to choose from.

    Raises:
        ConfigurationError: None of that name, or none for this machine.
    """
    for profile in profiles:
        if profile.name == wanted:
            return profile
    known = ", ".join(profile.name for profile in profiles)
    if wanted != "auto":
        raise ConfigurationError(f"profile: there is no {wanted!r}; known profiles: {known}")
    ranked = [
        (rule.rank, profile) for profile in profiles for rule in profile.recognize if facts.machine in rule.machines
    ]
    if not ranked:
        raise ConfigurationError(f"profile: nothing is known of {facts.machine!r}; known profiles: {known}")
    return max(ranked, key=lambda pair: pair[0])[1]
