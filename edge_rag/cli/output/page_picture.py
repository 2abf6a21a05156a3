"""Who has the KV pages, as a few lines of a terminal: a character stands for one page or a run of pages."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum

from rich.text import Text

from edge_rag.core.monitoring.status import EngineSnapshot, PageMap


class PageState(Enum):
    """Who has a page: the character for it, which tells without colours too, and its colour."""

    HELD = ("█", "cyan")
    SHARED = ("▓", "magenta")
    CACHED = ("▒", "yellow")
    FREE = ("·", "bright_black")

    @property
    def mark(self) -> str:
        """Its character."""
        return self.value[0]

    @property
    def colour(self) -> str:
        """Its colour."""
        return self.value[1]


@dataclass(frozen=True, slots=True)
class _Run:
    held: int
    shared: int
    cached: int

    @property
    def state(self) -> PageState:
        """What most of its pages are that are not free; free only if all are."""
        most, state = max(
            (self.held, PageState.HELD), (self.shared, PageState.SHARED), (self.cached, PageState.CACHED),
            key=lambda each: each[0],
        )  # fmt: skip
        return state if most else PageState.FREE


def states(pages: PageMap, room: int) -> list[PageState]:
    """Returns a state for each character of a picture of at most ``room`` characters."""
    cells = len(pages.held)
    size = max(1, -(-cells // room))
    runs = (slice(start, start + size) for start in range(0, cells, size))
    return [_Run(sum(pages.held[r]), sum(pages.shared[r]), sum(pages.cached[r])).state for r in runs]


def page_picture(engine: EngineSnapshot, width: int, most_lines: int) -> list[Text]:
    """Returns the picture with a legend above it.

    Args:
        engine: Has the map.
        width: Columns there are.
        most_lines: Lines that the map may take.
    """
    drawn = states(engine.page_map, width * most_lines)
    counts = Counter({PageState.SHARED: sum(engine.page_map.shared), PageState.CACHED: engine.pages_cached})
    counts[PageState.HELD] = max(0, engine.pages_used - counts[PageState.SHARED])
    counts[PageState.FREE] = max(0, engine.pages - engine.pages_used - engine.pages_cached)
    legend = Text.assemble(("pages", "bold"), no_wrap=True, overflow="ellipsis")
    for state in PageState:
        legend.append(f"  {state.mark} ", state.colour).append(f"{counts[state]:,} {state.name.lower()}")
    each = -(-engine.pages // len(drawn)) if drawn else 1
    note = f"   of {engine.page_tokens} tokens, {engine.kv_bytes / 2**20:,.0f} MiB"
    legend.append(note + (f", {each} a mark" if each > 1 else ""), "dim")
    lines = [legend]
    for start in range(0, len(drawn), width):
        line = Text(no_wrap=True)
        for state in drawn[start : start + width]:
            line.append(state.mark, state.colour)
        lines.append(line)
    return lines
