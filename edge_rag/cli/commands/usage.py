"""``edge-rag usage``: Shows the usage of each client."""

from __future__ import annotations

import click

from edge_rag.cli import options
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.terminal import counted, emit, note, printable
from edge_rag.core.monitoring.metrics import ClientUsage
from edge_rag.core.shapes.encoder import encode

_EPILOG = """\b
Examples:
  edge-rag usage
  edge-rag usage --json | jq '.clients[] | {client, generated_tokens}'
"""


@click.command(epilog=_EPILOG)
@options.connection
def usage(server: str | None, timeout_s: float | None, as_json: bool) -> ExitCode:
    """Shows the usage of each client. It is counted since the daemon started."""
    with options.open_client(server, timeout_s) as client:
        report = client.usage()
    if as_json:
        emit(encode(report))
        return ExitCode.OK
    for entry in report.clients:
        click.echo(printable(_line(entry)))
    count = len(report.clients)
    note(f"{counted(count, 'client')} since {report.since.astimezone():%Y-%m-%d %H:%M:%S}", "dim")
    return ExitCode.OK


def _line(entry: ClientUsage) -> str:
    return (
        f"{entry.client or 'all others'}  {entry.requests} requests, {entry.refused} refused,"
        f" {entry.prompt_tokens} prompt tokens ({entry.cached_prompt_tokens} cached),"
        f" {entry.generated_tokens} generated, {entry.slot_s:.2f} s in slots,"
        f" {entry.ingest_s:.2f} s of ingest"
    )
