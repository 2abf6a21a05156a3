"""``edge-rag status --watch``: the status as a live view on a terminal, as lines, or as JSON lines."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Final

import click
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.answers import format_duration
from edge_rag.cli.output.status_text import status_line
from edge_rag.cli.output.terminal import emit, printable
from edge_rag.client import CallStatus, Client, ClientError
from edge_rag.core.ids import Unrecognized
from edge_rag.core.monitoring.metrics import LatencyMetric
from edge_rag.core.monitoring.resources import MemoryPressureState, Temperature, Throttling
from edge_rag.core.monitoring.status import DaemonState, DaemonStatus, EngineStats, PageMap, SlotUse
from edge_rag.core.query import Priority
from edge_rag.core.shapes.encoder import encode


class PageState(Enum):
    """The use of KV pages: a character, readable without colour, and a colour."""

    HELD = ("█", "cyan")
    SHARED = ("▓", "magenta")
    CACHED = ("▒", "yellow")
    FREE = ("·", "bright_black")

    @property
    def mark(self) -> str:
        """The character."""
        return self.value[0]

    @property
    def colour(self) -> str:
        return self.value[1]


@dataclass(frozen=True, slots=True)
class _PageRun:
    held: int
    shared: int
    cached: int

    @property
    def state(self) -> PageState:
        """The most frequent use of its pages that are not free; free only if all are."""
        most, state = max(
            (self.held, PageState.HELD), (self.shared, PageState.SHARED), (self.cached, PageState.CACHED),
            key=lambda each: each[0],
        )  # fmt: skip
        return state if most else PageState.FREE


def page_states(pages: PageMap, max_cells: int) -> list[PageState]:
    """Returns the state of each character of a map of at most ``max_cells`` characters."""
    cells = len(pages.held)
    size = max(1, -(-cells // max_cells))
    runs = (slice(start, start + size) for start in range(0, cells, size))
    return [_PageRun(sum(pages.held[r]), sum(pages.shared[r]), sum(pages.cached[r])).state for r in runs]


def page_map_lines(engine: EngineStats, width: int, max_lines: int) -> list[Text]:
    """Draws the map of KV pages with a legend above it."""
    cells = page_states(engine.page_map, width * max_lines)
    counts = Counter({PageState.SHARED: sum(engine.page_map.shared), PageState.CACHED: engine.pages_cached})
    counts[PageState.HELD] = max(0, engine.pages_used - counts[PageState.SHARED])
    counts[PageState.FREE] = max(0, engine.pages - engine.pages_used - engine.pages_cached)
    legend = Text.assemble(("pages", "bold"), no_wrap=True, overflow="ellipsis")
    for state in PageState:
        legend.append(f"  {state.mark} ", state.colour).append(f"{counts[state]:,} {state.name.lower()}")
    each = -(-engine.pages // len(cells)) if cells else 1
    note = f"   of {engine.page_tokens} tokens, {engine.kv_bytes / 2**20:,.0f} MiB"
    legend.append(note + (f", {each} per mark" if each > 1 else ""), "dim")
    lines = [legend]
    for start in range(0, len(cells), width):
        line = Text(no_wrap=True)
        for state in cells[start : start + width]:
            line.append(state.mark, state.colour)
        lines.append(line)
    return lines


_TWO_COLUMNS: Final = 112
"""Minimum width for stages and latencies side by side."""

_WIDE: Final = 92
"""Minimum width for percentages and the client in the table of slots."""

_TALL: Final = 40
"""Minimum height for a page map of more than two lines."""

_MIN_SLOTS: Final = 8
"""Slots shown even if what follows them no longer fits."""

_HISTORY: Final = 60
_BAR: Final = 10
_SMALL_BAR: Final = 6
_SPARKS: Final = "▁▂▃▄▅▆▇█"
_STATES: Final = {
    DaemonState.STARTING: "yellow",
    DaemonState.SERVING: "green",
    DaemonState.DRAINING: "yellow",
    DaemonState.RECOVERY: "red",
}
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
    """A rich renderable of the latest status that fits the size of the terminal."""

    def __init__(self, report: DaemonStatus) -> None:
        self._generated = deque([0.0] * _HISTORY, maxlen=_HISTORY)
        self._computed = deque([0.0] * _HISTORY, maxlen=_HISTORY)
        self._problem: str | None = None
        self.update(report)

    def update(self, report: DaemonStatus) -> None:
        self._report = report
        self._problem = None
        self._generated.append(report.engine.generated_per_s)
        self._computed.append(report.engine.computed_per_s)

    def show_problem(self, problem: str) -> None:
        self._problem = problem

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(40, options.max_width - 2)
        above, below = self._above(width), self._below(width, 4 if options.size.height >= _TALL else 2)
        taken = sum(len(console.render_lines(part, options, pad=False)) for part in (above, below))
        slots = self._slots(width, max(_MIN_SLOTS, options.size.height - taken - 3))
        yield Padding(Group(above, slots, below), (0, 1))

    def _above(self, width: int) -> RenderableType:
        stages: RenderableType = _block("stages", self._stages())
        if width >= _TWO_COLUMNS and self._report.latencies:
            beside = Table.grid(padding=(0, 4))
            beside.add_row(stages, self._latencies())
            stages = beside
        return Group(self._header(width), Text(), stages, self._devices(), Text(), self._tokens(width), Text())

    def _below(self, width: int, lines: int) -> RenderableType:
        parts: list[RenderableType] = [Text(), *page_map_lines(self._report.engine, width, lines)]
        if width < _TWO_COLUMNS and self._report.latencies:
            parts += [Text(), self._latencies()]
        return Group(*parts)

    def _header(self, width: int) -> Text:
        report = self._report
        up = str(datetime.now(UTC) - report.started_at).split(".")[0]
        colour = "red" if self._problem else _colour(report.state)
        line = Text.assemble(
            ("edge-rag ", "bold"),
            (report.version, "dim"),
            f"  {printable(report.address)}  ",
            ("● ", colour),
            (self._problem or report.state.value, colour),
            no_wrap=True,
            overflow="ellipsis",
        )
        facts = f"  up {up}  {report.resident_bytes / 2**20:,.0f} MiB  {printable(report.profile)}"
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
            grid.add_row(Text(printable(device.name), "bold"), _bar(device.busy), Text(", ".join(device.stages), "dim"))
        zones, board = _temperatures(self._report.temperatures), _board(self._report.throttling, self._report.pressure)
        return Group(Text(), grid, *(line for line in (zones, board) if line.plain))

    def _tokens(self, width: int) -> RenderableType:
        engine = self._report.engine
        room = min(_HISTORY, max(4, (width - 57) // 2))
        grid = Table.grid(padding=(0, 2))
        grid.add_row(
            Text("tokens", "bold"),
            Text(f"{engine.generated_per_s:,.1f}/s generated", "bold" if engine.generated_per_s else "dim"),
            Text(_sparkline(self._generated, room), "cyan"),
            Text(f"{engine.computed_per_s:,.1f}/s computed", "" if engine.computed_per_s else "dim"),
            Text(_sparkline(self._computed, room), "blue"),
        )
        return grid

    def _slots(self, width: int, rows: int) -> RenderableType:
        engine, sequences = self._report.engine, self._report.engine.sequences
        title = Text.assemble(("slots", "bold"), (f"  {engine.slots_busy} of {engine.slots} in use", "dim"))
        if not sequences:
            return title
        table = _table(("request", "left"), ("class", "left"), ("age", "right"), ("prompt", "right"),
                       ("cached", "right"), ("answer", "right"), ("", "left"), ("pages", "right"))  # fmt: skip
        if width >= _WIDE:
            table.add_column("client", style="dim", no_wrap=True, overflow="ellipsis")
        for sequence in sequences[:rows]:
            table.add_row(*_slot(sequence, wide=width >= _WIDE))
        if len(sequences) > rows:
            return Group(title, table, Text(f"and {len(sequences) - rows} more", "dim"))
        return Group(title, table)

    def _latencies(self) -> RenderableType:
        table = _table(("", "left"), ("p50", "right"), ("p95", "right"), ("p99", "right"), ("of", "right"))
        for latency in self._report.latencies:
            table.add_row(
                _MEASURES[latency.measure],
                format_duration(latency.p50_s),
                format_duration(latency.p95_s),
                format_duration(latency.p99_s),
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


def _slot(sequence: SlotUse, wide: bool) -> Iterable[RenderableType]:
    share, colour = sequence.generated_tokens / max(1, sequence.max_tokens), "cyan"
    if sequence.computed_tokens < sequence.prompt_tokens:
        share, colour = sequence.computed_tokens / max(1, sequence.prompt_tokens), "yellow"
    preempted = f" ↺{sequence.preemptions}" if sequence.preemptions else ""
    yield Text(printable(sequence.request_id)[: 12 - len(preempted)] + preempted)
    yield Text(sequence.priority.name.lower(), _CLASSES[sequence.priority])
    yield format_duration(sequence.age_s)
    yield f"{sequence.prompt_tokens:,}"
    yield Text(f"{sequence.cached_tokens:,}", "" if sequence.cached_tokens else "dim")
    yield f"{sequence.generated_tokens:,}/{sequence.max_tokens:,}"
    yield _bar(share, colour) if wide else _line(share, _SMALL_BAR, colour)
    yield f"{sequence.pages:,}"
    if wide:
        yield printable(sequence.client)


def _bar(share: float, colour: str = "green") -> Text:
    return _line(share, _BAR, colour).append(f" {share:4.0%}")


def _line(share: float, length: int, colour: str) -> Text:
    """Draws a ratio as a bar; a ratio above 0 has at least one filled cell."""
    full = min(length, max(int(share * length + 0.5), 1 if share > 0.005 else 0))
    return Text.assemble(("━" * full, colour), ("─" * (length - full), "bright_black"))


def _sparkline(values: Iterable[float], width: int) -> str:
    latest: Sequence[float] = [*values][-width:]
    most = max(latest)
    if most <= 0:
        return _SPARKS[0] * len(latest)
    return "".join(_SPARKS[min(7, int(value / most * 7.999))] for value in latest)


def _temperatures(readings: Sequence[Temperature]) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    for reading in readings:
        colour = "red" if reading.celsius >= _HOT_C else "yellow" if reading.celsius >= _WARM_C else ""
        line.append(f"{printable(reading.zone)} ", "dim").append(f"{reading.celsius:.0f} °C   ", colour)
    return line


def _board(throttling: Throttling, memory: MemoryPressureState) -> Text:
    line = Text()
    if throttling.causes:
        causes = " and ".join(cause.value for cause in throttling.causes)
        line.append(f"throttled to {throttling.share:.0%} by {causes}   ", "bold red")
    for slowdown in throttling.slowdowns:
        line.append(f"{printable(slowdown)}   ", "red")
    if memory.shed:
        line.append(f"memory pressure, shed: {', '.join(each.value for each in memory.shed)}   ", "bold red")
    if throttling.watts is not None:
        line.append(f"{throttling.watts:.1f} W   ")
    if throttling.joules_per_token is not None:
        line.append(f"{throttling.joules_per_token:.2f} J per token", "dim")
    return line


def _colour(state: DaemonState | Unrecognized) -> str:
    return "yellow" if isinstance(state, Unrecognized) else _STATES[state]


_REDRAWS_PER_SECOND: Final = 4
"""How often the view adapts to the size of the terminal."""


def watch_status(client: Client, interval_s: float, as_json: bool) -> ExitCode:
    """Shows the status until Ctrl-C; without a terminal, also until the daemon shuts down."""
    console = Console(highlight=False, markup=False, emoji=False)
    try:
        if as_json:
            _for_each(client, interval_s, lambda report: emit(encode(report)))
        elif console.is_terminal and not console.is_dumb_terminal:
            _live(client, interval_s, console)
        else:
            _for_each(client, interval_s, lambda report: click.echo(printable(status_line(report, datetime.now()))))
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    return ExitCode.OK


def _for_each(client: Client, interval_s: float, show: Callable[[DaemonStatus], None]) -> None:
    for report in client.watch_status(interval_s):
        show(report)


def _live(client: Client, interval_s: float, console: Console) -> None:
    reports = client.watch_status(interval_s)
    first = next(reports, None)
    if first is None:
        return
    view = StatusView(first)
    with Live(view, console=console, screen=True, refresh_per_second=_REDRAWS_PER_SECOND, transient=True) as live:
        while True:
            view.show_problem(_follow(reports, view, live))
            live.refresh()
            time.sleep(interval_s)
            reports = client.watch_status(interval_s)


def _follow(reports: Iterator[DaemonStatus], view: StatusView, live: Live) -> str:
    """Shows reports until the stream ends; returns why it ended."""
    try:
        for report in reports:
            view.update(report)
            live.refresh()
    except ClientError as error:
        if error.status is not CallStatus.UNAVAILABLE:
            raise
        return "not reachable, trying again"
    return "shut down, waiting for a restart"
