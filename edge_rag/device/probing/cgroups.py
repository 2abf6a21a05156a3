"""Limits of the cgroups a process is in, its own and every parent's, version 2 and version 1."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from edge_rag.device.facts import CgroupLimit
from edge_rag.device.probing.files import integer_of, text_of

_NO_LIMIT: Final = 1 << 60
"""Version 1 says that there is no limit with a number about as large as there are."""


def memory_limits(root: Path) -> tuple[CgroupLimit, ...]:
    """Reads the limits on memory, those of the process's own cgroup first.

    In version 2 both ``memory.max``, above which the kernel kills, and ``memory.high``, above which it makes the
    process wait until memory was given back, count as limits.

    Args:
        root: Where ``proc`` and ``sys`` are.
    """
    limits: list[CgroupLimit] = []
    for mount, folder in _folders(root, "memory"):
        stat = _numbers(text_of(folder / "memory.stat") or "")
        if (used := integer_of(folder / "memory.current")) is not None:
            files, cache = ["memory.max", "memory.high"], stat.get("inactive_file", 0)
        elif (used := integer_of(folder / "memory.usage_in_bytes")) is not None:
            files, cache = ["memory.limit_in_bytes"], stat.get("total_inactive_file", stat.get("inactive_file", 0))
        else:
            continue
        for name in files:
            limit = integer_of(folder / name)
            if limit is not None and limit < _NO_LIMIT:
                shown = str((folder / name).relative_to(mount))
                limits.append(CgroupLimit(shown, limit, max(0, used - cache)))
    return tuple(limits)


def cpu_quota(root: Path) -> float | None:
    """Reads how many cores' worth of time the process may take; None without a limit."""
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
    """Yields mount and folder of every cgroup that a controller holds the process to, from its own up to the mount."""
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
            # Inside a container the mount shows a part of the hierarchy, and the path may be given from its top, or
            # lead out of what is shown; the mount itself is then all that can be read.
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
