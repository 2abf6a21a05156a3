"""``edge-rag status``."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from edge_rag.cli import options
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.answers import duration
from edge_rag.cli.output.json import status_object
from edge_rag.cli.output.status_dashboard import pressure_lines, throttling_lines
from edge_rag.cli.output.status_watch import watch_status
from edge_rag.cli.output.terminal import emit, visible
from edge_rag.client import Client
from edge_rag.core.monitoring.resources import MemoryPlanReport
from edge_rag.core.monitoring.status import DaemonStatus, IndexInUse, RemoteInUse
from edge_rag.core.placement import Placement, Precision

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
    help="Wait this long for the daemon to be there and to serve.",
)
@click.option("--watch", is_flag=True, help="Show it again and again, as a live view where there is a terminal.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(0.1, 3600),
    metavar="SECONDS",
    help="Time between two reports with --watch. [default: 1]",
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
    """Shows what a daemon is doing: models, queues, batch, cache, latencies and collections."""
    if interval_s is not None and not watch:
        raise click.UsageError("--interval goes with --watch.")
    with Client(server, timeout_s=timeout_s) as client:
        if wait_s is not None:
            client.wait_until_serving(wait_s)
        if watch:
            return watch_status(client, interval_s or 1.0, as_json)
        report = client.status()
    if as_json:
        emit(status_object(report))
    else:
        for line in status_lines(report, datetime.now(UTC)):
            click.echo(visible(line))
    return ExitCode.OK


def status_lines(report: DaemonStatus, now: datetime) -> list[str]:
    """Returns a report for people, one fact a line."""
    engine = report.engine
    up = str(now - report.started_at).split(".")[0]
    documents = ", ".join(f"{name} ({count})" for name, count in sorted(report.collections.items())) or "none"
    return [
        f"edge-rag {report.version} at {report.address}: {report.state.value}, up {up},"
        f" {report.resident_bytes / 2**20:.0f} MiB, profile {report.profile}",
        f"data         {report.data_directory}",
        *(f"{m.role:<12} {m.name}, {m.detail}; {placement_line(m.placement)}" for m in report.models),
        *(
            f"{s.name:<12} {s.running} running, {s.waiting} of {s.capacity} waiting,"
            f" {s.completed} done, {s.refused} refused, busy {s.busy:.0%}"
            for s in report.stages
        ),
        *(f"{d.name:<12} busy {d.busy:.0%} of the last 5 s with {', '.join(d.stages)}" for d in report.devices),
        *(f"temperature  {t.zone} {t.celsius:.0f} °C" for t in report.temperatures),
        *(f"{'board':<12} {line}" for line in throttling_lines(report.throttling)),
        *(f"{'memory':<12} {line}" for line in pressure_lines(report.pressure)),
        f"batch        {engine.slots_busy} of {engine.slots} slots, {engine.steps} steps,"
        f" {engine.generated_tokens} tokens generated, {engine.prefill_tokens} prefilled,"
        f" {engine.preemptions} preemptions",
        f"tokens       {engine.generated_per_s:.1f}/s said, {engine.computed_per_s:.1f}/s computed in the last 5 s",
        f"kv cache     {engine.pages_used} of {engine.pages} pages of {engine.page_tokens} tokens held,"
        f" {engine.pages_cached} cached, {engine.kv_bytes / 2**20:.1f} MiB",
        *(
            f"{latency.measure.value:<12} p50 {duration(latency.p50_s)}, p95 {duration(latency.p95_s)},"
            f" p99 {duration(latency.p99_s)} of the latest {latency.samples}"
            for latency in report.latencies
        ),
        *(f"remote       {remote_line(remote)}" for remote in report.remotes),
        *memory_lines(report.memory),
        f"collections  {documents}",
        *(f"index        {index_line(index)}" for index in report.indexes),
    ]


def memory_lines(memory: MemoryPlanReport) -> list[str]:
    """Returns what the memory was planned for, for people; nothing where a daemon does not say."""
    if not memory.items:
        return []
    short = f", halved {memory.shrink_steps} times to fit" if memory.shrink_steps else ""
    uses = ", ".join(f"{item.name} {-(-item.bytes // 2**20)}" for item in memory.items)
    return [f"memory       {memory.planned_bytes >> 20} of {memory.budget_bytes >> 20} MiB planned{short}: {uses}"]


def placement_line(placement: Placement) -> str:
    """Returns where a stage runs and why, for people."""
    on = f"on {placement.used.value}"
    if placement.precision is not Precision.MODEL:
        on += f" in {placement.precision.value}"
    return f"{on} instead of {placement.wanted.value}: {placement.reason}" if placement.is_fallback else on


def remote_line(remote: RemoteInUse) -> str:
    """Returns how it stands with another machine, for people."""
    state = {"closed": "asked", "open": "left alone after failures", "half_open": "being tried"}
    speed = "" if remote.answer_s is None else f", {duration(remote.answer_s)} an answer"
    encoded = f"{remote.embedded_texts} texts embedded, " if "embed" in remote.uses else ""
    encoded += f"{remote.reranked} questions' passages ranked, " if "rerank" in remote.uses else ""
    line = (
        f"{remote.name}, {remote.kind} at {remote.address}: {state.get(remote.breaker, remote.breaker)},"
        f" {remote.in_flight} under way, {remote.answers} done, {remote.failures} failed{speed},"
        f" {encoded}{remote.sent_bytes / 2**20:.1f} MiB sent"
    )
    return f"{line}; last: {remote.last_problem}" if remote.last_problem else line


def index_line(index: IndexInUse) -> str:
    """Returns how a collection is searched, for people."""
    line = f"{index.collection}: {index.kind.value}, {'?' if index.vectors is None else index.vectors} vectors"
    if index.recall is not None and index.built_at is not None and index.build_s is not None:
        line += (
            f", {index.unindexed} beside {index.size_bytes / 2**20:.1f} MiB, recall@10 {index.recall:.3f},"
            f" built {index.built_at:%Y-%m-%d %H:%M} in {duration(index.build_s)}"
        )
    return f"{line}, being renewed" if index.pending else line
