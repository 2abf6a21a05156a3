"""``edge-rag status --watch``: the report again and again, as a picture, as lines or as JSON lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Final

import click
from rich.console import Console
from rich.live import Live

from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.json import status_object
from edge_rag.cli.output.status_dashboard import StatusView, throttling_lines
from edge_rag.cli.output.terminal import emit, visible
from edge_rag.client import CallStatus, Client, ClientError
from edge_rag.core.monitoring.status import DaemonStatus

_REDRAWS: Final = 4
"""Times a second that the picture follows the size of the terminal."""


def watch_status(client: Client, interval_s: float, as_json: bool) -> ExitCode:
    """Shows the report until Ctrl-C, or until the daemon shuts down where no terminal shows it.

    Raises:
        ClientError: No report came at all, or, where no terminal shows it, none came any more.
    """
    console = Console(highlight=False, markup=False, emoji=False)
    try:
        if as_json:
            _each(client, interval_s, lambda report: emit(status_object(report)))
        elif console.is_terminal and not console.is_dumb_terminal:
            _live(client, interval_s, console)
        else:
            _each(client, interval_s, lambda report: click.echo(visible(status_line(report, datetime.now()))))
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    return ExitCode.OK


def status_line(report: DaemonStatus, now: datetime) -> str:
    """Returns what moves in a report, as one line."""
    engine = report.engine
    queues = ", ".join(f"{s.name} {s.running}+{s.waiting}" for s in report.stages)
    devices = "".join(f", {device.name} {device.busy:.0%}" for device in report.devices)
    heat = "".join(f", {reading.zone} {reading.celsius:.0f} °C" for reading in report.temperatures)
    shed = "".join(f", {ballast.value} given up" for ballast in report.pressure.shed)
    held = "".join(f", {line}" for line in throttling_lines(report.throttling)) + shed
    return (
        f"{now:%H:%M:%S} {report.state.value}: {queues}; slots {engine.slots_busy}/{engine.slots},"
        f" pages {engine.pages_used}/{engine.pages} ({engine.pages_cached} cached),"
        f" {engine.generated_per_s:.1f} tokens/s said, {engine.computed_per_s:.1f} computed{devices}{heat}{held}"
    )


def _each(client: Client, interval_s: float, tell: Callable[[DaemonStatus], None]) -> None:
    for report in client.watch_status(interval_s):
        tell(report)


def _live(client: Client, interval_s: float, console: Console) -> None:
    reports = client.watch_status(interval_s)
    first = next(reports, None)
    if first is None:
        return
    view = StatusView(first)
    with Live(view, console=console, screen=True, refresh_per_second=_REDRAWS, transient=True) as live:
        while True:
            view.lose(_follow(reports, view, live))
            live.refresh()
            time.sleep(interval_s)
            reports = client.watch_status(interval_s)


def _follow(reports: Iterator[DaemonStatus], view: StatusView, live: Live) -> str:
    """Shows reports as long as they come; returns why none comes any more."""
    try:
        for report in reports:
            view.show(report)
            live.refresh()
    except ClientError as error:
        if error.status is not CallStatus.UNAVAILABLE:
            raise
        return "not reachable, trying again"
    return "shut down, waiting for it"
