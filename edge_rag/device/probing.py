"""Reading the facts of a machine."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import psutil

from edge_rag.device.facts import DeviceFacts


def probe() -> DeviceFacts:
    """Reads the facts of this machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    available = int(psutil.virtual_memory().available)
    headroom = _cgroup_headroom(Path("/sys/fs/cgroup"))
    return DeviceFacts(platform.machine(), cores, available if headroom is None else min(available, headroom))


def _cgroup_headroom(root: Path) -> int | None:
    try:
        limit = (root / "memory.max").read_text().strip()
        used = (root / "memory.current").read_text().strip()
    except OSError:
        return None
    return None if limit == "max" else max(0, int(limit) - int(used))
