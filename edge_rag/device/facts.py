"""Facts of the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from edge_rag.core.placement import Provider, ProviderDevice
from edge_rag.runtime.session.providers import SPECS
from edge_rag.runtime.session.providers.spec import Accelerator

_BIG_CORE: Final = 0.5
"""Cores with a smaller share of the fastest core's capacity slow down every parallel product."""


@dataclass(frozen=True, slots=True)
class Core:
    """A processor core, as the kernel schedules it.

    Attributes:
        capacity: Speed relative to the fastest core of the machine, (0, 1].
        cluster: Number of its group of equal cores, fastest first, from 0.
        governor: Frequency governor; None where the kernel does not report it.
    """

    number: int
    capacity: float
    cluster: int
    governor: str | None = None


@dataclass(frozen=True, slots=True)
class ProcessorFacts:
    """The processor.

    Attributes:
        machine: Instruction set as the kernel names it, for example ``x86_64`` or ``aarch64``.
        model: Its name; empty where the kernel does not report it.
        features: Extensions that make integer products fast, as the kernel names them.
        cpu_quota: Cores' worth of time that cgroups allow; None without a limit.
        frequency_driver: Frequency driver; None where the kernel does not report it.
    """

    machine: str
    model: str
    features: frozenset[str]
    cores: tuple[Core, ...]
    allowed: frozenset[int]
    cpu_quota: float | None = None
    virtual: bool = False
    frequency_driver: str | None = None

    @property
    def usable(self) -> tuple[Core, ...]:
        return tuple(core for core in self.cores if core.number in self.allowed)

    @property
    def big(self) -> tuple[Core, ...]:
        """Usable cores that are at least half as fast as the fastest of them."""
        usable = self.usable
        fastest = max((core.capacity for core in usable), default=1.0)
        return tuple(core for core in usable if core.capacity >= _BIG_CORE * fastest)


@dataclass(frozen=True, slots=True)
class CgroupLimit:
    """A memory limit of a cgroup that contains this process.

    Attributes:
        used_bytes: Memory use of the cgroup, without page cache that can be dropped at once.
    """

    file: str
    limit_bytes: int
    used_bytes: int
    cache_bytes: int = 0

    @property
    def headroom_bytes(self) -> int:
        """Memory left under the limit, at least 0."""
        return max(0, self.limit_bytes - self.used_bytes)


@dataclass(frozen=True, slots=True)
class MemoryFacts:
    """The memory.

    Attributes:
        available_bytes: Memory available without swapping, by the kernel's estimate.
        limits: Limits of cgroups, the process's own first.
    """

    total_bytes: int
    available_bytes: int
    swap_bytes: int = 0
    swap_devices: tuple[str, ...] = ()
    limits: tuple[CgroupLimit, ...] = ()
    own_bytes: int = 0

    @property
    def tightest(self) -> CgroupLimit | None:
        """The limit with the least headroom; None without limits."""
        return min(self.limits, key=lambda limit: limit.headroom_bytes, default=None)

    @property
    def usable_bytes(self) -> int:
        tightest = self.tightest
        return self.available_bytes if tightest is None else min(self.available_bytes, tightest.headroom_bytes)

    @property
    def budget_bytes(self) -> int:
        """Memory that this process can have in total, including its present use.

        All page cache counts as free, as it does in ``available_bytes``: the files that this process keeps in use are
        planned, and what earlier processes of the cgroup left must not make the plan smaller.
        """
        rooms = [limit.headroom_bytes + limit.cache_bytes for limit in self.limits]
        return min([self.available_bytes, *rooms]) + self.own_bytes

    @property
    def board_bytes(self) -> int:
        return min([self.total_bytes, *(limit.limit_bytes for limit in self.limits)])


@dataclass(frozen=True, slots=True)
class BoardFacts:
    """Identity of the board.

    Attributes:
        model: Name for people; empty where there is none.
        compatible: Names in the device tree, most specific first; empty on boards without one.
        jetson_release: Release of Jetson Linux, for example ``36.4``; None elsewhere.
        power_mode: Name of the power mode; None on boards without power modes.
    """

    model: str = ""
    compatible: tuple[str, ...] = ()
    jetson_release: str | None = None
    power_mode: str | None = None


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """Accelerators, their drivers and libraries.

    Attributes:
        without_driver: Cards that are plugged in without a driver, for people.
        libraries: Versions of the libraries found, by name without suffix, for example ``libcudart``; not loaded.
        driver: Version of NVIDIA's driver; None without one.
        gpus: Names of NVIDIA cards, in the driver's order.
        built_for_cuda: Version of CUDA that ONNX Runtime was built for; None without CUDA.
    """

    accelerators: frozenset[Accelerator] = frozenset()
    without_driver: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    libraries: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    driver: str | None = None
    gpus: tuple[str, ...] = ()
    built_for_cuda: str | None = None


@dataclass(frozen=True, slots=True)
class ThermalZone:
    """A temperature sensor.

    Attributes:
        passive_celsius: Temperature from which the kernel throttles the board; None where it is not reported.
        critical_celsius: Temperature from which the kernel shuts the board down; None where it is not reported.
    """

    name: str
    celsius: float
    passive_celsius: float | None = None
    critical_celsius: float | None = None


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """All facts of the machine, read once."""

    processor: ProcessorFacts
    memory: MemoryFacts
    board: BoardFacts = field(default_factory=BoardFacts)
    drivers: DriverFacts = field(default_factory=DriverFacts)
    thermal: tuple[ThermalZone, ...] = ()
    devices: tuple[ProviderDevice, ...] = ()

    @property
    def machine(self) -> str:
        return self.processor.machine

    @property
    def cores(self) -> int:
        """Cores this process may run on, at least 1."""
        return max(1, len(self.processor.usable))

    @property
    def available_bytes(self) -> int:
        return self.memory.usable_bytes

    @property
    def providers(self) -> frozenset[Provider]:
        plugins = {
            spec.provider
            for spec in SPECS.values()
            if spec.plugin is not None and spec.distribution in self.drivers.packages
        }
        return frozenset(device.provider for device in self.devices) | plugins
