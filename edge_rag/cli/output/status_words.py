"""Parts of the daemon's report in words, for people."""

from __future__ import annotations

from edge_rag.core.monitoring.memory_pressure import MemoryPressure
from edge_rag.core.monitoring.throttling import Throttling


def throttling_lines(throttling: Throttling) -> list[str]:
    """Returns what the board suffers from, for people; nothing where it does not suffer and measures nothing."""
    lines = []
    if throttling.causes:
        causes = " and ".join(cause.value for cause in throttling.causes)
        lines.append(f"held back to {throttling.share:.0%} of slots and tokens by {causes}")
    lines += throttling.slowdowns
    if throttling.watts is not None:
        energy = throttling.joules_per_token
        lines.append(f"{throttling.watts:.1f} W" + ("" if energy is None else f", {energy:.2f} J a token"))
    return lines


def pressure_lines(memory: MemoryPressure) -> list[str]:
    """Returns how short memory is, for people; nothing where nobody looks."""
    if memory.headroom_bytes is None:
        return []
    waiting = "" if memory.waiting is None else f", {memory.waiting:.0%} of the time waited for it"
    given_up = "".join(f", {ballast.value} given up" for ballast in memory.given_up)
    return [f"{memory.headroom_bytes / 2**20:,.0f} MiB can still be taken{waiting}{given_up}"]
