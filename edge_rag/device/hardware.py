"""Reads board, sensors, processor and memory from the kernel's files.

Files are read below a root folder, so that a recorded tree can replace the machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

import psutil

from edge_rag.device.facts import BoardFacts, CgroupLimit, Core, MemoryFacts, ProcessorFacts, ThermalZone

_MOST_CORES: Final = 8192  # the largest that Linux supports


def text_of(path: Path) -> str | None:
    """Returns a file's text without surrounding white space and trailing NULs; None where it cannot be read."""
    try:
        return path.read_bytes().decode("utf-8", errors="replace").strip("\0 \t\r\n")
    except OSError:
        return None


def integer_of(path: Path) -> int | None:
    """Returns the integer in a file; None where it cannot be read or contains something else."""
    text = text_of(path)
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def cpu_list(text: str) -> frozenset[int]:
    """Parses a list of cores as the kernel writes it, for example ``0-3,6``; other parts are ignored."""
    numbers: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            numbers.update(range(int(first), min(int(last or first), _MOST_CORES) + 1))
    return frozenset(numbers)


_MILLIDEGREES = 1000
_ABSOLUTE_ZERO = -273.15


def read_board(root: Path) -> BoardFacts:
    """Reads the device tree, or the firmware's names on PCs; on Jetsons also the release and the power mode."""
    tree = root / "proc/device-tree"
    compatible = tuple(name for name in (text_of(tree / "compatible") or "").split("\0") if name)
    model = text_of(tree / "model")
    if model is None:
        firmware = root / "sys/class/dmi/id"
        names = (text_of(firmware / "sys_vendor"), text_of(firmware / "product_name"))
        model = " ".join(name for name in names if name)
    release = re.search(r"# R(\d+) \(release\), REVISION: (\d+)", text_of(root / "etc/nv_tegra_release") or "")
    return BoardFacts(
        model=model,
        compatible=compatible,
        jetson_release=f"{release[1]}.{release[2]}" if release else None,
        power_mode=_power_mode(root),
    )


def read_thermal(root: Path) -> tuple[ThermalZone, ...]:
    """Reads the temperature sensors, except those that cannot be read now."""
    folders = sorted((root / "sys/class/thermal").glob("thermal_zone*"), key=lambda each: (len(each.name), each.name))
    zones: list[ThermalZone] = []
    for folder in folders:
        value = integer_of(folder / "temp")
        if value is None or value / _MILLIDEGREES <= _ABSOLUTE_ZERO:
            continue
        zones.append(
            ThermalZone(
                name=text_of(folder / "type") or folder.name,
                celsius=value / _MILLIDEGREES,
                passive_celsius=_trip(folder, "passive"),
                critical_celsius=_trip(folder, "critical"),
            )
        )
    return tuple(zones)


def _trip(folder: Path, kind: str) -> float | None:
    values = [
        value / _MILLIDEGREES
        for file in folder.glob("trip_point_*_type")
        if text_of(file) == kind
        and (value := integer_of(file.with_name(file.name.replace("_type", "_temp")))) is not None
        and value > 0
    ]
    return min(values, default=None)


def _power_mode(root: Path) -> str | None:
    status = re.fullmatch(r"pmode:(\d+)(?:\s.*)?", text_of(root / "var/lib/nvpmodel/status") or "", re.DOTALL)
    if status is None:
        return None
    number = int(status[1])
    modes = re.findall(r"<\s*POWER_MODEL\s+ID=(\d+)\s+NAME=(\S+)\s*>", text_of(root / "etc/nvpmodel.conf") or "")
    return next((name for each, name in modes if int(each) == number), f"mode {number}")


_FEATURES = frozenset(
    {"avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm", "sve", "sve2", "asimdhp", "bf16"}
)
_SAME = 0.02
"""Cores whose speeds differ by less are of one kind: the maximum clock varies a little between cores."""


def read_processor(root: Path, machine: str, allowed: frozenset[int] | None) -> ProcessorFacts:
    """Reads the processor.

    Args:
        allowed: Cores this process may run on; None where the system does not report them: all of them.

    Returns:
        The facts. The speed of a core comes from ``cpu_capacity``, which boards with several kinds of cores have, else
        from its highest frequency; without either, all cores are equal.
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


def read_memory(root: Path) -> MemoryFacts:
    """Reads the memory.

    Args:
        root: Folder that contains ``proc`` and ``sys``; without ``proc/meminfo``, psutil is used.
    """
    text = text_of(root / "proc/meminfo")
    if text is None:
        memory, swap = psutil.virtual_memory(), psutil.swap_memory()
        return MemoryFacts(int(memory.total), int(memory.available), int(swap.total))
    kib = {name: int(value) for name, value in re.findall(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE)}
    own = re.search(r"^RssAnon:\s+(\d+) kB$", text_of(root / "proc/self/status") or "", re.MULTILINE)
    swaps = (text_of(root / "proc/swaps") or "").splitlines()[1:]
    return MemoryFacts(
        total_bytes=kib.get("MemTotal", 0) << 10,
        available_bytes=kib.get("MemAvailable", kib.get("MemFree", 0)) << 10,
        swap_bytes=kib.get("SwapTotal", 0) << 10,
        swap_devices=tuple(line.split()[0] for line in swaps if line.strip()),
        limits=memory_limits(root),
        own_bytes=int(own[1]) << 10 if own else 0,
    )


_NO_LIMIT: Final = 1 << 60
"""Version 1 of cgroups reports a number close to 2**63 where there is no limit."""


def memory_limits(root: Path) -> tuple[CgroupLimit, ...]:
    """Reads the memory limits, those of the process's own cgroup first.

    In version 2 both ``memory.max``, above which the kernel kills, and ``memory.high``, above which it stalls the
    process until memory is reclaimed, count as limits.
    """
    limits: list[CgroupLimit] = []
    for mount, folder in _folders(root, "memory"):
        stat = _numbers(text_of(folder / "memory.stat") or "")
        if (used := integer_of(folder / "memory.current")) is not None:
            files, total = ["memory.max", "memory.high"], ""
        elif (used := integer_of(folder / "memory.usage_in_bytes")) is not None:
            files, total = ["memory.limit_in_bytes"], "total_" if "total_inactive_file" in stat else ""
        else:
            continue
        used = max(0, used - stat.get(f"{total}inactive_file", 0))
        cache = min(used, stat.get(f"{total}active_file", 0))
        for name in files:
            limit = integer_of(folder / name)
            if limit is not None and limit < _NO_LIMIT:
                shown = str((folder / name).relative_to(mount))
                limits.append(CgroupLimit(shown, limit, used, cache))
    return tuple(limits)


def cpu_quota(root: Path) -> float | None:
    """Returns how many cores' worth of time the process may use; None without a limit."""
    quotas: list[float] = []
    for _, folder in _folders(root, "cpu"):
        words = (text_of(folder / "cpu.max") or "").split()
        quota, period = integer_of(folder / "cpu.cfs_quota_us"), integer_of(folder / "cpu.cfs_period_us")
        if len(words) == 2 and words[0].isdecimal() and words[1].isdecimal() and int(words[1]) > 0:
            quotas.append(int(words[0]) / int(words[1]))
        elif quota is not None and period is not None and quota > 0 and period > 0:
            quotas.append(quota / period)
    return min(quotas, default=None)


def _folders(root: Path, controller: str) -> Iterator[tuple[Path, Path]]:
    """Yields mount and folder of every cgroup of a controller that contains the process, innermost first."""
    mounts = list(_mounts(root))
    for line in (text_of(root / "proc/self/cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        unified = number == "0" and not controllers
        if not unified and controller not in controllers.split(","):
            continue
        for mount, inside, kind, options in mounts:
            if kind != ("cgroup2" if unified else "cgroup") or (not unified and controller not in options):
                continue
            # Inside a container the mount shows a part of the hierarchy, and the path may start above it or lead out of
            # it; then only the mount itself can be read.
            whole = PurePosixPath(path)
            inner = whole.is_relative_to(inside) and ".." not in whole.parts
            folder = mount / whole.relative_to(inside) if inner else mount
            for each in (folder, *folder.parents):
                yield mount, each
                if each == mount:
                    break
            break


def _mounts(root: Path) -> Iterator[tuple[Path, str, str, frozenset[str]]]:
    for line in (text_of(root / "proc/self/mountinfo") or "").splitlines():
        before, _, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if len(fields) >= 5 and len(rest) >= 3 and rest[0] in ("cgroup", "cgroup2"):
            place = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[4])
            yield root / place.lstrip("/"), fields[3], rest[0], frozenset(rest[2].split(","))


def _numbers(text: str) -> dict[str, int]:
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}
