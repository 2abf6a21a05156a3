"""Chooses the device profile: rules over facts, of which the one with the highest rank that holds wins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from edge_rag.device.facts import DeviceFacts
from edge_rag.device.profile import DeviceProfile, ProfileRule
from edge_rag.errors import ConfigurationError

AUTO: Final = "auto"
"""Setting that chooses the profile by the rules, instead of a name."""

_GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of a rule.

    Attributes:
        holds: Whether the machine meets it.
        text: The condition and the fact, for people.
    """

    holds: bool
    text: str


@dataclass(frozen=True, slots=True)
class RuleResult:
    """Result of a rule.

    Attributes:
        profile: Name of its profile.
        rank: Its rank.
        conditions: All its conditions.
    """

    profile: str
    rank: int
    conditions: tuple[Condition, ...]

    @property
    def holds(self) -> bool:
        """Whether all conditions hold."""
        return all(condition.holds for condition in self.conditions)


@dataclass(frozen=True, slots=True)
class ProfileChoice:
    """The profile for a machine.

    Attributes:
        profile: The profile.
        configured: Whether the setting `profile` names it.
        results: Result of each rule, highest rank first.
    """

    profile: DeviceProfile
    configured: bool
    results: tuple[RuleResult, ...]

    @property
    def reason(self) -> str:
        """The reason in one line."""
        if self.configured:
            return "named in the settings"
        won = next(result for result in self.results if result.holds)
        return "; ".join(condition.text for condition in won.conditions)


def choose(wanted: str, facts: DeviceFacts, profiles: Sequence[DeviceProfile]) -> ProfileChoice:
    """Chooses a profile.

    Args:
        wanted: Name of a profile, or ``auto``.
        facts: Facts of the machine.
        profiles: The candidates; of rules with equal rank, the earlier profile's wins.

    Raises:
        ConfigurationError: No profile has that name, or none matches this machine.
    """
    pairs = [(rule, profile) for profile in profiles for rule in profile.recognize]
    pairs.sort(key=lambda pair: -pair[0].rank)
    results = tuple(RuleResult(profile.name, rule.rank, tuple(conditions_of(rule, facts))) for rule, profile in pairs)
    named = next((profile for profile in profiles if profile.name == wanted), None)
    if named is not None:
        return ProfileChoice(named, True, results)
    known = ", ".join(profile.name for profile in profiles)
    if wanted != AUTO:
        raise ConfigurationError(f"profile: there is no {wanted!r}; known profiles: {known}")
    for (_, profile), result in zip(pairs, results, strict=True):
        if result.holds:
            return ProfileChoice(profile, False, results)
    raise ConfigurationError(f"profile: nothing is known of {facts.machine!r}; known profiles: {known}")


def conditions_of(rule: ProfileRule, facts: DeviceFacts) -> Iterator[Condition]:
    """Yields the conditions of a rule on a machine."""
    if rule.compatible:
        names = facts.board.compatible
        match = next((name for name in names if any(fnmatchcase(name, each) for each in rule.compatible)), None)
        found = f"the device tree has {match}" if match else f"no {' or '.join(rule.compatible)} in the device tree"
        yield Condition(match is not None, found)
    if rule.machines:
        holds = facts.machine in rule.machines
        yield Condition(holds, f"the machine is {facts.machine}" + ("" if holds else f", not {_either(rule.machines)}"))
    for accelerator in rule.accelerators:
        holds = accelerator in facts.drivers.accelerators
        yield Condition(holds, f"{'there is' if holds else 'no'} {accelerator.name} with its driver")
    for provider in rule.providers:
        holds = provider in facts.providers
        yield Condition(holds, f"the provider {provider.value} is {'' if holds else 'not '}installed")
    total = facts.memory.total_bytes / _GIB
    if rule.min_memory_gib is not None:
        holds = total >= rule.min_memory_gib
        yield Condition(holds, f"{total:.1f} GiB of memory {'reach' if holds else 'are below'} {rule.min_memory_gib:g}")
    if rule.max_memory_gib is not None:
        holds = total < rule.max_memory_gib
        yield Condition(holds, f"{total:.1f} GiB of memory {'are below' if holds else 'reach'} {rule.max_memory_gib:g}")


def _either(names: Sequence[str]) -> str:
    return " or ".join(names)
