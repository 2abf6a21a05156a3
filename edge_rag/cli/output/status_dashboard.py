"""The daemon's report as a picture for a terminal: what waits, what runs, who has the pages, how fast it goes.

Who has the KV pages, as a few lines of a terminal: a character stands for one page or a run of pages.

Parts of the daemon's report in words, for people.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Final

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from edge_rag.cli.output.answers import duration
from edge_rag.cli.output.terminal import visible
from edge_rag.core.ids import Unrecognized
from edge_rag.core.monitoring.metrics import LatencyMetric
from edge_rag.core.monitoring.resources import MemoryPressureState, Temperature, Throttling
from edge_rag.core.monitoring.status import DaemonState, DaemonStatus, EngineStats, PageMap, SlotUse
from edge_rag.core.query import Priority


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


def page_picture(engine: EngineStats, width: int, most_lines: int) -> list[Text]:
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


_BESIDE: Final = 112
"""Columns from which on stages and latencies lie beside each other."""

_ROOMY: Final = 92
"""Columns from which on a slot's line has room for shares in numbers and the client."""

_TALL: Final = 40
"""Lines from which on the picture of the pages may take more than two."""

_LEAST_SLOTS: Final = 8
"""Slots that are shown even where what comes after them does not fit any more."""

_REMEMBERED: Final = 60
_BAR: Final = 10
_SMALL_BAR: Final = 6
_SPARKS: Final = "▁▂▃▄▅▆▇█"
_STATES: Final = {DaemonState.STARTING: "yellow", DaemonState.SERVING: "green", DaemonState.DRAINING: "yellow"}
_CLASSES: Final = {Priority.INTERACTIVE: "bold", Priority.NORMAL: "", Priority.BATCH: "dim"}
_MEASURES: Final = {
    LatencyMetric.QUEUE: "wait for a slot",
    LatencyMetric.FIRST_TOKEN: "first token",
    LatencyMetric.PER_TOKEN: "per token",
    LatencyMetric.TOKEN_GAP: "between tokens",
    LatencyMetric.COMPLETION: "whole answer",
}
_WARM_C: Final = 70.0
_HOT_C: Final = 85.0


class StatusView:
    """Draws the latest report into whatever room the terminal has.

    Args:
        report: The first one.
    """

    def __init__(self, report: DaemonStatus) -> None:
        self._generated = deque([0.0] * _REMEMBERED, maxlen=_REMEMBERED)
        self._computed = deque([0.0] * _REMEMBERED, maxlen=_REMEMBERED)
        self._problem: str | None = None
        self.show(report)

    def show(self, report: DaemonStatus) -> None:
        """Draws another report from now on."""
        self._report = report
        self._problem = None
        self._generated.append(report.engine.generated_per_s)
        self._computed.append(report.engine.computed_per_s)

    def lose(self, problem: str) -> None:
        """Says that no report comes any more, over the last one there was."""
        self._problem = problem

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(40, options.max_width - 2)
        above, below = self._above(width), self._below(width, 4 if options.size.height >= _TALL else 2)
        taken = sum(len(console.render_lines(part, options, pad=False)) for part in (above, below))
        slots = self._slots(width, max(_LEAST_SLOTS, options.size.height - taken - 3))
        yield Padding(Group(above, slots, below), (0, 1))

    def _above(self, width: int) -> RenderableType:
        stages: RenderableType = _block("stages", self._stages())
        if width >= _BESIDE and self._report.latencies:
            beside = Table.grid(padding=(0, 4))
            beside.add_row(stages, self._latencies())
            stages = beside
        return Group(self._header(width), Text(), stages, self._devices(), Text(), self._tokens(width), Text())

    def _below(self, width: int, lines: int) -> RenderableType:
        parts: list[RenderableType] = [Text(), *page_picture(self._report.engine, width, lines)]
        if width < _BESIDE and self._report.latencies:
            parts += [Text(), self._latencies()]
        return Group(*parts)

    def _header(self, width: int) -> Text:
        report = self._report
        up = str(datetime.now(UTC) - report.started_at).split(".")[0]
        colour = "red" if self._problem else _colour(report.state)
        line = Text.assemble(
            ("edge-rag ", "bold"),
            (report.version, "dim"),
            f"  {visible(report.address)}  ",
            ("● ", colour),
            (self._problem or report.state.value, colour),
            no_wrap=True,
            overflow="ellipsis",
        )
        facts = f"  up {up}  {report.resident_bytes / 2**20:,.0f} MiB  {visible(report.profile)}"
        if line.cell_len + len(facts) <= width:
            line.append(facts, "dim")
        return line

    def _stages(self) -> Table:
        table = _table(("", "left"), ("waiting", "right"), ("of", "right"), ("running", "right"), ("busy", "left"),
                       ("done", "right"), ("refused", "right"))  # fmt: skip
        for stage in self._report.stages:
            crowded = stage.waiting > stage.capacity / 2
            table.add_row(
                stage.name,
                Text(f"{stage.waiting:,}", "bold red" if crowded else "bold" if stage.waiting else "dim"),
                Text(f"{stage.capacity:,}", "dim"),
                Text(f"{stage.running:,}", "bold" if stage.running else "dim"),
                _bar(stage.busy),
                f"{stage.completed:,}",
                Text(f"{stage.refused:,}", "red" if stage.refused else "dim"),
            )
        return table

    def _devices(self) -> RenderableType:
        grid = Table.grid(padding=(0, 2))
        for device in self._report.devices:
            grid.add_row(Text(visible(device.name), "bold"), _bar(device.busy), Text(", ".join(device.stages), "dim"))
        zones, board = _temperatures(self._report.temperatures), _board(self._report.throttling, self._report.pressure)
        return Group(Text(), grid, *(line for line in (zones, board) if line.plain))

    def _tokens(self, width: int) -> RenderableType:
        engine = self._report.engine
        room = min(_REMEMBERED, max(8, (width - 52) // 2))
        grid = Table.grid(padding=(0, 2))
        grid.add_row(
            Text("tokens", "bold"),
            Text(f"{engine.generated_per_s:,.1f}/s said", "bold" if engine.generated_per_s else "dim"),
            Text(_sparks(self._generated, room), "cyan"),
            Text(f"{engine.computed_per_s:,.1f}/s computed", "" if engine.computed_per_s else "dim"),
            Text(_sparks(self._computed, room), "blue"),
        )
        return grid

    def _slots(self, width: int, rows: int) -> RenderableType:
        engine, sequences = self._report.engine, self._report.engine.sequences
        title = Text.assemble(("slots", "bold"), (f"  {engine.slots_busy} of {engine.slots} taken", "dim"))
        if not sequences:
            return title
        table = _table(("request", "left"), ("class", "left"), ("age", "right"), ("prompt", "right"),
                       ("cached", "right"), ("said", "right"), ("", "left"), ("pages", "right"))  # fmt: skip
        if width >= _ROOMY:
            table.add_column("client", style="dim", no_wrap=True, overflow="ellipsis")
        for sequence in sequences[:rows]:
            table.add_row(*_slot(sequence, roomy=width >= _ROOMY))
        if len(sequences) > rows:
            return Group(title, table, Text(f"and {len(sequences) - rows} more", "dim"))
        return Group(title, table)

    def _latencies(self) -> RenderableType:
        table = _table(("", "left"), ("p50", "right"), ("p95", "right"), ("p99", "right"), ("of", "right"))
        for latency in self._report.latencies:
            table.add_row(
                _MEASURES[latency.measure],
                duration(latency.p50_s),
                duration(latency.p95_s),
                duration(latency.p99_s),
                Text(f"{latency.samples:,}", "dim"),
            )
        return _block("latency", table)


def _block(title: str, content: RenderableType) -> RenderableType:
    return Group(Text(title, "bold"), content)


def _table(*columns: tuple[str, str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name, side in columns:
        table.add_column(name, justify="right" if side == "right" else "left", no_wrap=True, overflow="ellipsis")
    return table


def _slot(sequence: SlotUse, roomy: bool) -> Iterable[RenderableType]:
    share, colour = sequence.generated_tokens / max(1, sequence.max_tokens), "cyan"
    if sequence.computed_tokens < sequence.prompt_tokens:
        share, colour = sequence.computed_tokens / max(1, sequence.prompt_tokens), "yellow"
    given_way = f" ↺{sequence.preemptions}" if sequence.preemptions else ""
    yield Text(visible(sequence.request_id)[: 12 - len(given_way)] + given_way)
    yield Text(sequence.priority.name.lower(), _CLASSES[sequence.priority])
    yield duration(sequence.age_s)
    yield f"{sequence.prompt_tokens:,}"
    yield Text(f"{sequence.cached_tokens:,}", "" if sequence.cached_tokens else "dim")
    yield f"{sequence.generated_tokens:,}/{sequence.max_tokens:,}"
    yield _bar(share, colour) if roomy else _line(share, _SMALL_BAR, colour)
    yield f"{sequence.pages:,}"
    if roomy:
        yield visible(sequence.client)


def _bar(share: float, colour: str = "green") -> Text:
    """Returns a share as a line and in per cent."""
    return _line(share, _BAR, colour).append(f" {share:4.0%}")


def _line(share: float, length: int, colour: str) -> Text:
    """Returns a share as a line, heavy and light; more than nothing is never shown as nothing."""
    full = min(length, max(int(share * length + 0.5), 1 if share > 0.005 else 0))
    return Text.assemble(("━" * full, colour), ("─" * (length - full), "bright_black"))


def _sparks(values: Iterable[float], room: int) -> str:
    latest: Sequence[float] = [*values][-room:]
    most = max(latest)
    if most <= 0:
        return _SPARKS[0] * len(latest)
    return "".join(_SPARKS[min(7, int(value / most * 7.999))] for value in latest)


def _temperatures(readings: Sequence[Temperature]) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    for reading in readings:
        colour = "red" if reading.celsius >= _HOT_C else "yellow" if reading.celsius >= _WARM_C else ""
        line.append(f"{visible(reading.zone)} ", "dim").append(f"{reading.celsius:.0f} °C   ", colour)
    return line


def _board(throttling: Throttling, memory: MemoryPressureState) -> Text:
    line = Text()
    if throttling.causes:
        causes = " and ".join(cause.value for cause in throttling.causes)
        line.append(f"held back to {throttling.share:.0%} by {causes}   ", "bold red")
    for slowdown in throttling.slowdowns:
        line.append(f"{visible(slowdown)}   ", "red")
    if memory.shed:
        line.append(f"for want of memory: no {', no '.join(each.value for each in memory.shed)}   ", "bold red")
    if throttling.watts is not None:
        line.append(f"{throttling.watts:.1f} W   ")
    if throttling.joules_per_token is not None:
        line.append(f"{throttling.joules_per_token:.2f} J a token", "dim")
    return line


def _colour(state: DaemonState | Unrecognized) -> str:
    return "yellow" if isinstance(state, Unrecognized) else _STATES[state]


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


def pressure_lines(memory: MemoryPressureState) -> list[str]:
    """Returns how short memory is, for people; nothing where nobody looks."""
    if memory.headroom_bytes is None:
        return []
    waiting = "" if memory.waiting is None else f", {memory.waiting:.0%} of the time waited for it"
    given_up = "".join(f", {ballast.value} given up" for ballast in memory.shed)
    return [f"{memory.headroom_bytes / 2**20:,.0f} MiB can still be taken{waiting}{given_up}"]
