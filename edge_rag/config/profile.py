"""Device profiles: what a kind of board gets. Choosing is a pure function of facts."""

from __future__ import annotations

import os
import platform
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import psutil

from edge_rag.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What was read off the machine, once.

    Attributes:
        machine: Instruction set as the kernel names it, for example ``x86_64`` or ``aarch64``.
        cores: Cores this process may run on.
        available_bytes: Memory that can still be taken: the smaller of the kernel's estimate and the cgroup's headroom.
    """

    machine: str
    cores: int
    available_bytes: int


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """What a kind of board gets.

    Attributes:
        name: Name of the profile.
        machines: Instruction sets it is for.
        threads_share: Computing threads as a share of the cores, (0, 1].
        kv_memory_share: Share of the available memory that KV pages may take, (0, 1].
        max_slots: Sequences that run at once.
        max_step_tokens: Tokens computed in one step.
        prefill_share: Share of a step that prompts keep however many sequences decode, (0, 1).
    """

    name: str
    machines: tuple[str, ...]
    threads_share: float
    kv_memory_share: float
    max_slots: int
    max_step_tokens: int
    prefill_share: float

    def threads(self, facts: DeviceFacts) -> int:
        """Returns the number of computing threads, at least 1."""
        return max(1, int(facts.cores * self.threads_share))

    def kv_bytes(self, facts: DeviceFacts) -> int:
        """Returns the memory that KV pages may take, bytes."""
        return int(facts.available_bytes * self.kv_memory_share)


def probe() -> DeviceFacts:
    """Reads the facts of this machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    available = int(psutil.virtual_memory().available)
    headroom = _cgroup_headroom(Path("/sys/fs/cgroup"))
    return DeviceFacts(platform.machine(), cores, available if headroom is None else min(available, headroom))


def builtin_profiles() -> tuple[DeviceProfile, ...]:
    """Returns the profiles that come with the package, by name.

    Raises:
        ConfigurationError: A profile file is damaged; names it.
    """
    folder = files("edge_rag.config") / "profiles"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".toml"))
    return tuple(_parse(name.removesuffix(".toml"), (folder / name).read_text(encoding="utf-8")) for name in names)


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
        if profile.name == wanted or (wanted == "auto" and facts.machine in profile.machines):
            return profile
    known = ", ".join(profile.name for profile in profiles)
    reason = f"nothing is known of {facts.machine!r}" if wanted == "auto" else f"there is no {wanted!r}"
    raise ConfigurationError(f"profile: {reason}; known profiles: {known}")


def kv_page_count(budget_bytes: int, page_bytes: int, page_tokens: int, max_slots: int, max_context: int) -> int:
    """Plans the KV cache.

    Args:
        budget_bytes: Memory it may take.
        page_bytes: Size of one page over all layers.
        page_tokens: Tokens a page holds.
        max_slots: Sequences that run at once.
        max_context: Longest sequence, tokens.

    Returns:
        Pages: as many as fit the budget, at most twice what full slots need (the rest could only hold cold prefixes).

    Raises:
        ConfigurationError: Not even one sequence of full length fits.
    """
    pages_per_sequence = -(-max_context // page_tokens)
    affordable = budget_bytes // page_bytes
    if affordable < pages_per_sequence:
        need = pages_per_sequence * page_bytes
        raise ConfigurationError(
            f"generator.kv_memory_mib: {budget_bytes >> 20} MiB hold {affordable} pages, one sequence of {max_context}"
            f" tokens needs {pages_per_sequence} ({-(-need >> 20)} MiB)"
        )
    return min(affordable, 2 * max_slots * pages_per_sequence)


def _parse(name: str, text: str) -> DeviceProfile:
    try:
        values = tomllib.loads(text)
        return DeviceProfile(name=name, machines=tuple(values.pop("machines")), **values)
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise ConfigurationError(f"profile {name}: {error}") from error


def _cgroup_headroom(root: Path) -> int | None:
    try:
        limit = (root / "memory.max").read_text().strip()
        used = (root / "memory.current").read_text().strip()
    except OSError:
        return None
    return None if limit == "max" else max(0, int(limit) - int(used))
