"""``edge-rag audit``: Shows the audit log of requests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from edge_rag.cli import options
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.answers import format_duration
from edge_rag.cli.output.terminal import counted, emit, note, printable
from edge_rag.core.ids import RequestId
from edge_rag.core.monitoring.event import AuditEntry, AuditEventKind
from edge_rag.core.shapes.encoder import encode
from edge_rag.errors import NotFound

if TYPE_CHECKING:
    from edge_rag.client import EntriesDropped

_EPILOG = """\b
Examples:
  edge-rag audit --request ticket-17          # ask -v prints the id of a question
  edge-rag audit --limit 20
  edge-rag audit --follow --json | jq -c 'select(.kind == "preempted")'
"""

_KIND_WIDTH = max(len(kind.value) for kind in AuditEventKind)


@click.command(epilog=_EPILOG)
@click.option("--request", "request_id", default="", metavar="ID", help="Only events of this request.")
@click.option("--follow", is_flag=True, help="Print new events as they happen, until Ctrl-C.")
@click.option(
    "--limit",
    type=click.IntRange(0, 1_000_000),
    help="Show only this many of the latest. [default: all kept]",
)
@options.connection
def audit(
    request_id: str, follow: bool, limit: int | None, server: str | None, timeout_s: float | None, as_json: bool
) -> ExitCode:
    """Shows the audit log of requests. Each event has a reason and the numbers behind it."""
    with options.open_client(server, timeout_s) as client:
        try:
            shown = _show(client.audit_events(request_id, follow=follow, limit=limit), as_json)
        except KeyboardInterrupt:
            if not follow:
                raise
            return ExitCode.INTERRUPTED
    if not shown and request_id and not follow and limit != 0:
        raise NotFound(f"no events of request {request_id} are kept")
    if not shown:
        note("no events are kept", "dim")
    return ExitCode.OK


def _show(entries: Iterable[AuditEntry | EntriesDropped], as_json: bool) -> bool:
    from edge_rag.client import EntriesDropped

    timeline, shown = Timeline(), False
    for item in entries:
        match item:
            case EntriesDropped(count=count):
                if as_json:
                    emit({"dropped_entries": count})
                else:
                    note(f"{counted(count, 'earlier event')} {'is' if count == 1 else 'are'} no longer kept", "dim")
            case AuditEntry():
                shown = True
                if as_json:
                    emit(encode(item))
                else:
                    click.echo(printable(timeline.line(item)))
    return shown


class Timeline:
    """Formats events for people, with the time since the first one shown of the same request."""

    def __init__(self) -> None:
        self._first: dict[RequestId, float] = {}

    def line(self, entry: AuditEntry) -> str:
        """Formats one event; the clock is local time."""
        event = entry.event
        clock = entry.at.astimezone().strftime("%H:%M:%S.%f")[:-3]
        since, request = "", "-"
        if event.request_id is not None:
            request = event.request_id
            since = f"+{event.at_s - self._first.setdefault(event.request_id, event.at_s):.3f} s"
            if event.kind in _FINAL:
                del self._first[event.request_id]
        rank = "" if event.priority is None else f" ({event.priority.name.lower()}, {event.client})"
        for_request = f" in favour of {event.preempted_for}" if event.preempted_for else ""
        numbers = " · ".join(_number(name, value) for name, value in sorted(event.numbers.items()))
        reason = f"{event.reason}{for_request}" + (f" [{numbers}]" if numbers else "")
        return f"{clock} {since:>11}  {event.kind.value:<{_KIND_WIDTH}}  {request}{rank}: {reason}"


_FINAL = {
    AuditEventKind.REFUSED,
    AuditEventKind.FINISHED,
    AuditEventKind.CANCELLED,
    AuditEventKind.EXPIRED,
    AuditEventKind.FAILED,
}


def _number(name: str, value: float) -> str:
    if name.endswith("_s"):
        return f"{name[:-2]} {format_duration(value)}"
    return f"{name} {value:,.0f}" if value.is_integer() else f"{name} {value:.4g}"
