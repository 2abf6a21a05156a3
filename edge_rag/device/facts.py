"""What was read off the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from edge_rag.core.placement import Provider, ProviderDevice
from edge_rag.runtime.session.providers import SPECS
from edge_rag.runtime.session.providers.spec import Accelerator

_BIG_CORE: Final = 0.5
"""A core with less of the fastest one's capacity holds up the others in each parallel product."""


@dataclass(frozen=True, slots=True)
class Core:
    """A processor core, as the kernel schedules on it.

    Attributes:
        number: The kernel's number.
        capacity: How fast it is, relative to the fastest of the machine, (0, 1].
        cluster: Number of the group of equal cores that it belongs to, fastest first, from 0.
        governor: How its frequency is chosen; None where the kernel does not say.
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
        model: Its name; empty where the kernel does not say.
        features: Extensions that make products of integers fast, as the kernel names them.
        cores: All cores, by number.
        allowed: Numbers of those that this process may run on.
        cpu_quota: Cores' worth of time that cgroups allow; None without a limit.
        virtual: Whether a hypervisor is below.
        frequency_driver: What sets the frequency; None where the kernel does not say.
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
        """Cores this process may run on."""
        return tuple(core for core in self.cores if core.number in self.allowed)

    @property
    def big(self) -> tuple[Core, ...]:
        """Of these, those that are at least half as fast as the fastest of them."""
        usable = self.usable
        fastest = max((core.capacity for core in usable), default=1.0)
        return tuple(core for core in usable if core.capacity >= _BIG_CORE * fastest)


@dataclass(frozen=True, slots=True)
class CgroupLimit:
    """A limit on memory of a cgroup that this process is in, itself or through one of its parents.

    Attributes:
        file: File that has the limit, below the mount.
        limit_bytes: The limit.
        used_bytes: What the cgroup uses, less the page cache it could give back at once.
    """

    file: str
    limit_bytes: int
    used_bytes: int

    @property
    def headroom_bytes(self) -> int:
        """What can still be taken, at least 0."""
        return max(0, self.limit_bytes - self.used_bytes)


@dataclass(frozen=True, slots=True)
class MemoryFacts:
    """The memory.

    Attributes:
        total_bytes: What the kernel manages.
        available_bytes: What can be had without swapping, as the kernel estimates it.
        swap_bytes: Size of all swap.
        swap_devices: What it lies on, as the kernel names it.
        limits: Limits of cgroups, the process's own first.
        own_bytes: What this process has of its own already, page cache not included.
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
        """What this process can still take: the kernel's estimate or the least headroom, whichever is less."""
        tightest = self.tightest
        return self.available_bytes if tightest is None else min(self.available_bytes, tightest.headroom_bytes)

    @property
    def budget_bytes(self) -> int:
        """What this process can have all told, with what it has already."""
        return self.usable_bytes + self.own_bytes

    @property
    def board_bytes(self) -> int:
        """What the process could ever have: all memory, or the lowest limit."""
        return min([self.total_bytes, *(limit.limit_bytes for limit in self.limits)])


@dataclass(frozen=True, slots=True)
class BoardFacts:
    """What the board says it is.

    Attributes:
        model: Name for people; empty where there is none.
        compatible: Names in the device tree, most specific first; empty on boards without one.
        jetson_release: Release of Jetson Linux, for example ``36.4``; None elsewhere.
        power_mode: Name of the power mode where the board has them; None elsewhere.
    """

    model: str = ""
    compatible: tuple[str, ...] = ()
    jetson_release: str | None = None
    power_mode: str | None = None


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """Accelerators, and what it takes to use them.

    Attributes:
        accelerators: Those whose driver is in place.
        without_driver: Cards that are plugged in while no driver of theirs is in place, for people.
        nodes: Their device files.
        libraries: Versions of libraries that were found, by name without suffix, for example ``libcudart``; not loaded.
        packages: Versions of Python packages that bring execution providers, by name.
        driver: Version of NVIDIA's driver; None without one.
        gpus: What NVIDIA's driver calls the cards it has, in order.
        built_for_cuda: Version of CUDA that ONNX Runtime was built for; None where it was built for none.
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
        name: What the kernel calls it.
        celsius: Temperature when it was read.
        passive_celsius: From here on the kernel slows the board down; None where it does not say.
        critical_celsius: From here on it shuts the board down; None where it does not say.
    """

    name: str
    celsius: float
    passive_celsius: float | None = None
    critical_celsius: float | None = None


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What was read off the machine, once.

    Attributes:
        processor: The processor.
        memory: The memory.
        board: The board.
        drivers: Accelerators and their libraries.
        thermal: Temperature sensors.
        devices: What ONNX Runtime says it can run on.
    """

    processor: ProcessorFacts
    memory: MemoryFacts
    board: BoardFacts = field(default_factory=BoardFacts)
    drivers: DriverFacts = field(default_factory=DriverFacts)
    thermal: tuple[ThermalZone, ...] = ()
    devices: tuple[ProviderDevice, ...] = ()

    @property
    def machine(self) -> str:
        """Instruction set as the kernel names it."""
        return self.processor.machine

    @property
    def cores(self) -> int:
        """Cores this process may run on, at least 1."""
        return max(1, len(self.processor.usable))

    @property
    def available_bytes(self) -> int:
        """Memory that can still be taken."""
        return self.memory.usable_bytes

    @property
    def providers(self) -> frozenset[Provider]:
        """Execution providers that are installed: built into ONNX Runtime, or as a plugin beside it."""
        plugins = {
            spec.provider
            for spec in SPECS.values()
            if spec.plugin is not None and spec.distribution in self.drivers.packages
        }
        return frozenset(device.provider for device in self.devices) | plugins
