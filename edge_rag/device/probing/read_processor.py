"""Reading the processor: cores, how fast each is, and which of them this process may use."""

from __future__ import annotations

import re
from pathlib import Path

from edge_rag.device.facts import Core, ProcessorFacts
from edge_rag.device.probing.cgroups import cpu_quota
from edge_rag.device.probing.files import cpu_list, integer_of, text_of

_FEATURES = frozenset(
    {"avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm", "sve", "sve2", "asimdhp", "bf16"}
)
_SAME = 0.02
"""Cores that differ by less in speed are of one kind: a core's best clock varies a little from die to die."""


def read_processor(root: Path, machine: str, allowed: frozenset[int] | None) -> ProcessorFacts:
    """Reads the processor.

    Args:
        root: Where ``proc`` and ``sys`` are.
        machine: Instruction set as the kernel names it.
        allowed: Cores this process may run on; None where the system does not say: all of them.

    Returns:
        The facts. How fast a core is comes from ``cpu_capacity``, which boards with cores of several kinds have, else
        from its highest frequency; where neither is there, all are equal.
    """
    info = text_of(root / "proc/cpuinfo") or ""
    cpus = root / "sys/devices/system/cpu"
    present = cpu_list(text_of(cpus / "online") or text_of(cpus / "present") or "")
    if not present:
        present = frozenset(int(number) for number in re.findall(r"^processor\s*:\s*(\d+)", info, re.MULTILINE))
    numbers = sorted(present or allowed or {0})
    speeds = _speeds(cpus, numbers)
    clusters = _clusters(speeds)
    cores = tuple(
        Core(number, speeds[number], clusters[number], text_of(cpus / f"cpu{number}/cpufreq/scaling_governor"))
        for number in numbers
    )
    words = set(re.findall(r"^(?:flags|Features)\s*:(.*)$", info, re.MULTILINE)[:1])
    flags = frozenset(" ".join(words).split())
    model = re.search(r"^(?:model name|Hardware)\s*:\s*(.+)$", info, re.MULTILINE)
    return ProcessorFacts(
        machine=machine,
        model=model[1].strip() if model else "",
        features=flags & _FEATURES,
        cores=cores,
        allowed=frozenset(numbers) if allowed is None else allowed & frozenset(numbers) or frozenset(numbers),
        cpu_quota=cpu_quota(root),
        virtual="hypervisor" in flags,
        frequency_driver=text_of(cpus / f"cpu{numbers[0]}/cpufreq/scaling_driver"),
    )


def _speeds(cpus: Path, numbers: list[int]) -> dict[int, float]:
    for file in ("cpu_capacity", "cpufreq/cpuinfo_max_freq"):
        values = {number: integer_of(cpus / f"cpu{number}" / file) for number in numbers}
        known = {number: value for number, value in values.items() if value is not None and value > 0}
        if len(known) == len(numbers):
            fastest = max(known.values())
            return {number: value / fastest for number, value in known.items()}
    return dict.fromkeys(numbers, 1.0)


def _clusters(speeds: dict[int, float]) -> dict[int, int]:
    kinds: list[float] = []
    for speed in sorted(set(speeds.values()), reverse=True):
        if not kinds or kinds[-1] - speed > _SAME:
            kinds.append(speed)
    return {number: sum(kind - _SAME > speed for kind in kinds) for number, speed in speeds.items()}
