"""``edge-rag usage``."""

from __future__ import annotations

import click

from edge_rag.cli import options
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.json import usage_object
from edge_rag.cli.output.terminal import emit, notes, visible
from edge_rag.client import Client
from edge_rag.core.monitoring.metrics import ClientUsage

_EPILOG = """\b
Examples:
  edge-rag usage
  edge-rag usage --json | jq '.clients[] | {client, generated_tokens}'
"""


@click.command(epilog=_EPILOG)
@options.connection
def usage(server: str | None, timeout_s: float | None, as_json: bool) -> ExitCode:
    """Shows what each client used of the generator since the daemon was started."""
    with Client(server, timeout_s=timeout_s) as client:
        report = client.usage()
    if as_json:
        emit(usage_object(report))
        return ExitCode.OK
    for entry in report.clients:
        click.echo(visible(_line(entry)))
    count = len(report.clients)
    notes().print(
        f"{count} {'client' if count == 1 else 'clients'} since {report.since.astimezone():%Y-%m-%d %H:%M:%S}",
        style="dim",
    )
    return ExitCode.OK


def _line(entry: ClientUsage) -> str:
    return (
        f"{entry.client or 'all others'}  {entry.requests} requests, {entry.refused} refused,"
        f" {entry.prompt_tokens} prompt tokens ({entry.cached_prompt_tokens} cached),"
        f" {entry.generated_tokens} generated, {entry.slot_s:.2f} s in slots"
    )
