"""``edge-rag status``: Shows the status of a daemon."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import click

from edge_rag.cli import options
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.terminal import emit, printable

_EPILOG = """\b
Examples:
  edge-rag status
  edge-rag status --wait 60          # until the daemon serves
  edge-rag status --watch            # a live view, until Ctrl-C
  edge-rag status --json | jq .engine
  edge-rag status --watch --json --interval 10 >> status.jsonl
"""


@click.command(epilog=_EPILOG)
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Wait at most this long until the daemon serves.",
)
@click.option("--watch", is_flag=True, help="Repeat until Ctrl-C, as a live view on a terminal.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(0.1, 3600),
    metavar="SECONDS",
    help="Interval of --watch. [default: 1]",
)
@options.connection
def status(
    wait_s: float | None,
    watch: bool,
    interval_s: float | None,
    server: str | None,
    timeout_s: float | None,
    as_json: bool,
) -> ExitCode:
    """Shows the status of a daemon. Models, queues, batch, KV cache, latencies and collections."""
    if interval_s is not None and not watch:
        raise click.UsageError("--interval needs --watch.")
    from edge_rag.cli.files.watch_report import watch_alerts

    with options.open_client(server, timeout_s) as client:
        if wait_s is not None:
            client.wait_until_serving(wait_s)
        if watch:
            from edge_rag.cli.output.status_dashboard import watch_status

            return watch_status(client, interval_s or 1.0, as_json)
        report = client.status()
    report = replace(report, alerts=(*report.alerts, *watch_alerts()))
    if as_json:
        from edge_rag.core.shapes.encoder import encode

        emit(encode(report))
    else:
        from edge_rag.cli.output.status_text import status_lines

        for line in status_lines(report, datetime.now(UTC)):
            click.echo(printable(line))
    return ExitCode.OK
