"""``edge-rag jobs``: Lists, watches and cancels ingest jobs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import click

from edge_rag.cli import options
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.help import Group
from edge_rag.cli.output.terminal import counted, emit, error_console, print_line, printable
from edge_rag.core.documents.jobs import Job, JobDocumentState, JobState
from edge_rag.core.ids import Unrecognized
from edge_rag.core.shapes.encoder import encode

if TYPE_CHECKING:
    from edge_rag.client import Client, JobEntry, JobProgress

_EPILOG = """\b
Examples:
  edge-rag ingest --no-wait manuals/
  edge-rag jobs list
  edge-rag jobs watch 3f9c2a7be1d04456
  edge-rag jobs cancel 3f9c2a7be1d04456
"""
_RETRY_S: Final = 60.0


@click.group(cls=Group, epilog=_EPILOG)
def jobs() -> None:
    """Lists, watches and cancels ingest jobs. A job survives a restart of the daemon."""


@jobs.command("list", epilog="\b\nExample:\n  edge-rag jobs list --json")
@options.connection
def list_jobs(server: str | None, timeout_s: float | None, as_json: bool) -> ExitCode:
    """Lists the latest jobs, newest first."""
    with options.open_client(server, timeout_s) as client:
        found = client.jobs()
    if as_json:
        emit({"jobs": [encode(job) for job in found]})
        return ExitCode.OK
    for job in found:
        waits = forecast_text(job)
        click.echo(
            f"{job.job_id}  {_state(job):<9}  {job.started_at:%Y-%m-%d %H:%M:%S} UTC  {_counts(job)}"
            + (f"  {waits}" if waits else "")
        )
    return ExitCode.OK


@jobs.command("watch", epilog="\b\nExample:\n  edge-rag jobs watch 3f9c2a7be1d04456")
@click.argument("job_id", metavar="JOB")
@options.connection
def watch_job(job_id: str, server: str | None, timeout_s: float | None, as_json: bool) -> ExitCode:
    """Watches a job to its end; exits with 1 if a document was rejected."""
    with options.open_client(server, timeout_s, _RETRY_S) as client:
        return _watch(client, job_id, as_json)


@jobs.command("cancel", epilog="\b\nExample:\n  edge-rag jobs cancel 3f9c2a7be1d04456")
@click.argument("job_id", metavar="JOB")
@options.connection
def cancel_job(job_id: str, server: str | None, timeout_s: float | None, as_json: bool) -> ExitCode:
    """Cancels a job: documents that it has not stored are dropped."""
    with options.open_client(server, timeout_s) as client:
        job = client.cancel_job(job_id)
    if as_json:
        emit({"job": encode(job)})
    else:
        click.echo(f"{job.job_id}  {job.state.value}  {_counts(job)}")
    return ExitCode.OK


def _watch(client: Client, job_id: str, as_json: bool) -> ExitCode:
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    console = error_console()
    entries: dict[tuple[str, str], JobEntry] = {}
    job: Job | None = None
    columns = (BarColumn(), DownloadColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)
        for progress in client.watch_job(job_id):
            job = progress.job
            bar.update(task, total=job.size_bytes, completed=job.done_bytes, description=progress_text(progress))
            for entry in progress.documents:
                entries[(entry.collection, entry.name)] = entry
                if not as_json and entry.state is not JobDocumentState.QUEUED:
                    print_line(f"{entry.state.value:<10}  {entry.name}{_reason(entry)}")
    counts = Counter(entry.state for entry in entries.values())
    if as_json and job is not None:
        emit({"job": encode(job), "documents": encode(list(entries.values()))})
    elif job is not None:
        console.print(f"job {job.job_id} {job.state.value}: {_counts(job)}")
    cancelled = job is not None and job.state is JobState.CANCELLED
    unrecognized = any(isinstance(state, Unrecognized) for state in counts)
    return ExitCode.FAILURE if counts[JobDocumentState.REJECTED] or cancelled or unrecognized else ExitCode.OK


def _counts(job: Job) -> str:
    counts = ", ".join(f"{count} {state.value}" for state, count in job.documents.items())
    return counts or "no documents"


def _state(job: Job) -> str:
    begun = any(state is not JobDocumentState.QUEUED for state in job.documents)
    return "queued" if job.state is JobState.RUNNING and job.documents_ahead and not begun else job.state.value


def forecast_text(job: Job) -> str:
    parts = []
    if job.documents_ahead:
        parts.append(f"behind {counted(job.documents_ahead, 'document')} of other jobs")
    if job.time_left_s is not None:
        parts.append(f"about {_duration(job.time_left_s)} left")
    return ", ".join(parts)


def progress_text(progress: JobProgress) -> str:
    """Formats the step of the current document, the documents that are stored before the job, and the time left."""
    work, expected = progress.work, forecast_text(progress.job)
    if work is None:
        return expected
    if work.problem:
        return printable(f"waiting: {work.problem}")
    chunks = f" {work.chunks_done}/{work.chunks}" if work.chunks else ""
    return printable(f"{work.phase.value}{chunks} {work.name}{f', {expected}' if expected else ''}")


def _duration(seconds: float) -> str:
    """Formats an estimate in its largest unit: 8 s, 3 min, 2 h."""
    for unit, least, size in (("h", 5400.0, 3600.0), ("min", 90.0, 60.0)):
        if seconds >= least:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(1.0, seconds):.0f} s"


def _reason(entry: JobEntry) -> str:
    return f": {entry.reason}" if entry.reason else ""
