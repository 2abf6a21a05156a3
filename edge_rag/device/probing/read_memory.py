"""Reading how much memory there is, and how much of it this process may still take."""

from __future__ import annotations

import re
from pathlib import Path

import psutil

from edge_rag.device.facts import MemoryFacts
from edge_rag.device.probing.cgroups import memory_limits
from edge_rag.device.probing.files import text_of


def read_memory(root: Path) -> MemoryFacts:
    """Reads the memory.

    Args:
        root: Where ``proc`` and ``sys`` are; where there is no ``proc/meminfo``, the system is asked another way.
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
