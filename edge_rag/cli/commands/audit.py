"""``edge-rag audit``: why an answer took as long as it did."""

from __future__ import annotations

from collections.abc import Iterable

import click

from edge_rag.cli import options
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.answers import duration
from edge_rag.cli.output.terminal import emit, notes, visible
from edge_rag.client import Client, EntriesDropped
from edge_rag.core.ids import RequestId
from edge_rag.core.monitoring.event import AuditEntry, AuditEventKind
from edge_rag.telemetry.audit_log_file import entry_object

_EPILOG = """\b
Examples:
  edge-rag audit --request ticket-17          # ask prints the id of each question
  edge-rag audit --limit 20
  edge-rag audit --follow --json | jq -c 'select(.kind == "preempted")'
"""

_KIND_WIDTH = max(len(kind.value) for kind in AuditEventKind)


@click.command(epilog=_EPILOG)
@click.option("--request", "request_id", default="", metavar="ID", help="Only decisions about this request.")
@click.option("--follow", is_flag=True, help="Go on with decisions as they are made, until Ctrl-C.")
@click.option("--limit", type=click.IntRange(0, 1_000_000), help="Show only so many of the latest. [default: all kept]")
@options.connection
def audit(
    request_id: str, follow: bool, limit: int | None, server: str | None, timeout_s: float | None, as_json: bool
) -> ExitCode:
    """Shows what was decided about questions, why, and on which numbers."""
    with Client(server, timeout_s=timeout_s) as client:
        try:
            shown = _show(client.audit_events(request_id, follow=follow, limit=limit), as_json)
        except KeyboardInterrupt:
            if not follow:
                raise
            return ExitCode.INTERRUPTED
    if not shown:
        about = f" about request {request_id}" if request_id else ""
        notes().print(visible(f"no decisions{about} are kept"), style="dim")
    return ExitCode.OK


def _show(decisions: Iterable[AuditEntry | EntriesDropped], as_json: bool) -> bool:
    timeline, shown = Timeline(), False
    for item in decisions:
        match item:
            case EntriesDropped(count=count):
                if as_json:
                    emit({"dropped_entries": count})
                else:
                    notes().print(f"{count} earlier decisions are no longer kept", style="dim")
            case AuditEntry():
                shown = True
                if as_json:
                    emit(entry_object(item))
                else:
                    click.echo(visible(timeline.line(item)))
    return shown


class Timeline:
    """Writes decisions for people, each with the time since the first one shown about the same request."""

    def __init__(self) -> None:
        self._first: dict[RequestId, float] = {}

    def line(self, entry: AuditEntry) -> str:
        """Returns the line of a decision; the clock is local time."""
        made = entry.event
        clock = entry.at.astimezone().strftime("%H:%M:%S.%f")[:-3]
        since, who = "", "-"
        if made.request_id is not None:
            who = made.request_id
            since = f"+{made.at_s - self._first.setdefault(made.request_id, made.at_s):.3f} s"
            if made.kind in _LAST:
                del self._first[made.request_id]
        rank = "" if made.priority is None else f" ({made.priority.name.lower()}, {made.client})"
        favoured = f" in favour of {made.preempted_for}" if made.preempted_for else ""
        numbers = " · ".join(_number(name, value) for name, value in sorted(made.numbers.items()))
        why = f"{made.reason}{favoured}" + (f" [{numbers}]" if numbers else "")
        return f"{clock} {since:>11}  {made.kind.value:<{_KIND_WIDTH}}  {who}{rank}: {why}"


_LAST = {
    AuditEventKind.REFUSED,
    AuditEventKind.FINISHED,
    AuditEventKind.CANCELLED,
    AuditEventKind.EXPIRED,
    AuditEventKind.FAILED,
}


def _number(name: str, value: float) -> str:
    if name.endswith("_s"):
        return f"{name[:-2]} {duration(value)}"
    return f"{name} {value:,.0f}" if value.is_integer() else f"{name} {value:.4g}"
