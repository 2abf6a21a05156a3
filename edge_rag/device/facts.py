"""What was read off the machine."""

from __future__ import annotations

from dataclasses import dataclass


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
