"""The device profile that settings ask for."""

from __future__ import annotations

from dataclasses import replace

from edge_rag.config.settings import Settings
from edge_rag.device.choosing import Choice, choose
from edge_rag.device.facts import DeviceFacts
from edge_rag.device.profile_file import builtin_profiles, overridden


def choose_profile(settings: Settings, facts: DeviceFacts) -> Choice:
    """Chooses among the profiles that came along, and lays the operator's file over the chosen one.

    Raises:
        ConfigurationError: There is no such profile, nothing is known of the machine, or the file is unusable.
    """
    choice = choose(settings.profile, facts, builtin_profiles())
    if settings.profile_file is None:
        return choice
    return replace(choice, profile=overridden(choice.profile, settings.profile_file))
