"""Parts of the daemon's report in words, for people."""

from __future__ import annotations

from edge_rag.core.status import Throttling


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
