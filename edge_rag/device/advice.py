"""Advice on what would make a device faster, from its facts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from edge_rag.device.facts import DeviceFacts
from edge_rag.device.memory_plan import MemoryPlan
from edge_rag.device.profile import DeviceProfile
from edge_rag.runtime.session.providers import SPECS
from edge_rag.runtime.session.providers.spec import ProviderSpec

_DYNAMIC_DRIVERS: Final = frozenset({"intel_pstate", "amd-pstate-epp"})
"""Drivers that raise the frequency under load even with the governor ``powersave``."""

_CLOSE_CELSIUS: Final = 5.0


def advise(facts: DeviceFacts, profile: DeviceProfile, plan: MemoryPlan | None) -> tuple[str, ...]:
    """Returns advice that would make the device faster, largest gain first.

    Args:
        plan: The memory plan; None where no plan fits.
    """
    return (*_accelerators(facts), *_memory(facts, plan), *_cores(facts, profile), *_clocks(facts, profile))


def _accelerators(facts: DeviceFacts) -> Iterator[str]:
    for card in facts.drivers.without_driver:
        spec = next(
            spec
            for spec in SPECS.values()
            if any(each.card and card.startswith(each.card) for each in spec.accelerators)
        )
        yield f"there is {card} without its driver: install it, and {_distribution(spec)}"
    for spec in SPECS.values():
        if spec.provider in facts.providers or not spec.advised:
            continue
        for accelerator in spec.accelerators:
            if accelerator in facts.drivers.accelerators:
                yield f"{accelerator.label} is not used: install {_distribution(spec)}"
    if facts.machine in ("aarch64", "arm64") and facts.processor.features.isdisjoint({"asimddp", "i8mm"}):
        yield "the processor has no dot products of integers (asimddp), which the kernels are several times faster with"


def _distribution(spec: ProviderSpec) -> str:
    return spec.distribution if spec.plugin is not None else f"{spec.distribution} instead of onnxruntime"


def _memory(facts: DeviceFacts, plan: MemoryPlan | None) -> Iterator[str]:
    if plan is not None and plan.shrink_steps:
        yield (
            f"memory is short: with more of it there would be {2**plan.shrink_steps} times the slots of "
            f"{plan.sizes.slots} and the step of {plan.sizes.step_tokens} tokens"
        )
    tightest = facts.memory.tightest
    if tightest is not None and tightest.headroom_bytes < facts.memory.available_bytes // 2:
        yield (
            f"{tightest.file} leaves {tightest.headroom_bytes >> 20} MiB of the {facts.memory.available_bytes >> 20} "
            "MiB that are free: raise the limit"
        )
    cards = [device for device in facts.memory.swap_devices if device.startswith("/dev/mmcblk")]
    if cards:
        yield f"swap lies on {', '.join(cards)}, a memory card, which is slow and wears out: use zram instead"


def _cores(facts: DeviceFacts, profile: DeviceProfile) -> Iterator[str]:
    processor = facts.processor
    if len(processor.usable) < len(processor.cores):
        yield (
            f"the process may run on {len(processor.usable)} of {len(processor.cores)} cores: widen its affinity"
            " (CPUAffinity, taskset, cpuset)"
        )
    if processor.cpu_quota is not None and processor.cpu_quota < len(processor.usable):
        yield f"a cgroup gives time for {processor.cpu_quota:g} of {len(processor.usable)} cores: raise cpu.max"
    usable = len(processor.usable)
    if profile.threads(facts) < min(usable, len(processor.big)) and processor.cpu_quota is None:
        yield f"the profile computes with {profile.threads(facts)} threads of {usable} cores: raise threads.share"


def _clocks(facts: DeviceFacts, profile: DeviceProfile) -> Iterator[str]:
    if facts.processor.frequency_driver not in _DYNAMIC_DRIVERS and any(
        core.governor == "powersave" for core in facts.processor.usable
    ):
        yield "the frequency governor is powersave, which keeps the lowest clock: use schedutil or performance"
    mode = facts.board.power_mode
    if mode is not None and not mode.upper().startswith("MAXN"):
        yield f"the power mode is {mode}: nvpmodel has larger ones, as far as supply and cooling allow"
    for zone in facts.thermal:
        limit = min(zone.passive_celsius or 1000.0, profile.thermal.throttle_celsius)
        if zone.celsius >= limit - _CLOSE_CELSIUS:
            yield f"{zone.name} has {zone.celsius:.0f} degrees, it slows down at {limit:.0f}: see to the cooling"
