"""``edge-rag jobs``: documents that were handed over and are stored one after the other."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from edge_rag.cli import options
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.output.terminal import emit, notes, visible
from edge_rag.client import Client, JobEntry, JobProgress, RetryPolicy
from edge_rag.core.documents.jobs import Job, JobDocumentState, JobState
from edge_rag.core.ids import Unrecognized

_EPILOG = """\b
Examples:
  edge-rag ingest --no-wait manuals/
  edge-rag jobs list
  edge-rag jobs watch 3f9c2a7be1d04456
  edge-rag jobs cancel 3f9c2a7be1d04456
"""
_RETRY = RetryPolicy(max_backoff_s=60)


@click.group(epilog=_EPILOG)
def jobs() -> None:
    """Lists, follows and cancels jobs: what was handed over is stored also if the daemon is restarted meanwhile."""


@jobs.command("list", epilog="\b\nExample:\n  edge-rag jobs list --json")
@options.connection
def list_jobs(server: str | None, timeout_s: float | None, as_json: bool) -> ExitCode:
    """Lists the latest jobs, the newest first."""
    with Client(server, timeout_s=timeout_s) as client:
        found = client.jobs()
    if as_json:
        emit({"jobs": [job_object(job) for job in found]})
        return ExitCode.OK
    for job in found:
        click.echo(f"{job.job_id}  {job.state.value:<9}  {job.started_at:%Y-%m-%d %H:%M:%S} UTC  {report(job)}")
    return ExitCode.OK


@jobs.command("watch", epilog="\b\nExample:\n  edge-rag jobs watch 3f9c2a7be1d04456")
@click.argument("job_id", metavar="JOB")
@options.connection
def watch_job(job_id: str, server: str | None, timeout_s: float | None, as_json: bool) -> ExitCode:
    """Follows a job to its end; ends with code 1 where a document was rejected."""
    with Client(server, timeout_s=timeout_s, retry=_RETRY) as client:
        return follow(client, job_id, as_json)


@jobs.command("cancel", epilog="\b\nExample:\n  edge-rag jobs cancel 3f9c2a7be1d04456")
@click.argument("job_id", metavar="JOB")
@options.connection
def cancel_job(job_id: str, server: str | None, timeout_s: float | None, as_json: bool) -> ExitCode:
    """Ends a job: what it has not stored yet will not be."""
    with Client(server, timeout_s=timeout_s) as client:
        job = client.cancel_job(job_id)
    if as_json:
        emit({"job": job_object(job)})
    else:
        click.echo(f"{job.job_id}  {job.state.value}  {report(job)}")
    return ExitCode.OK


def follow(client: Client, job_id: str, as_json: bool) -> ExitCode:
    """Shows a job's documents as they are done, with a bar on a terminal, and its report at the end."""
    console = notes()
    entries: dict[tuple[str, str], JobEntry] = {}
    job: Job | None = None
    with _bar(console) as bar:
        task = bar.add_task("", total=None)
        for progress in client.watch_job(job_id):
            job = progress.job
            bar.update(task, total=job.size_bytes, completed=job.done_bytes, description=doing(progress))
            for entry in progress.documents:
                entries[(entry.collection, entry.name)] = entry
                if not as_json and entry.state is not JobDocumentState.QUEUED:
                    click.echo(visible(f"{entry.state.value:<10}  {entry.name}{_because(entry)}"))
    counts = Counter(entry.state for entry in entries.values())
    if as_json and job is not None:
        documents = [asdict(entry) | {"state": entry.state.value} for entry in entries.values()]
        emit({"job": job_object(job), "documents": documents})
    elif job is not None:
        console.print(f"job {job.job_id} {job.state.value}: {report(job)}")
    cancelled = job is not None and job.state is JobState.CANCELLED
    unclear = any(isinstance(state, Unrecognized) for state in counts)
    return ExitCode.FAILURE if counts[JobDocumentState.REJECTED] or cancelled or unclear else ExitCode.OK


def report(job: Job) -> str:
    """Returns how many documents of a job are in which state."""
    counts = ", ".join(f"{count} {state.value}" for state, count in job.documents.items())
    return counts or "no documents"


def job_object(job: Job) -> dict[str, Any]:
    """Returns a job as JSON; times as ISO 8601 in UTC."""
    return {
        "id": job.job_id,
        "state": job.state.value,
        "started_at": job.started_at.isoformat(),
        "finished_at": None if job.finished_at is None else job.finished_at.isoformat(),
        "size_bytes": job.size_bytes,
        "done_bytes": job.done_bytes,
        "documents": {state.value: 0 for state in JobDocumentState}
        | {state.value: count for state, count in job.documents.items()},
    }


def doing(progress: JobProgress) -> str:
    """Returns what is being done to the document in work; empty where none is."""
    work = progress.work
    if work is None:
        return ""
    if work.problem:
        return visible(f"waits: {work.problem}")
    chunks = f" {work.chunks_done}/{work.chunks}" if work.chunks else ""
    return visible(f"{work.phase.value}{chunks} {work.name}")


def _bar(console: Console) -> Progress:
    columns = (BarColumn(), DownloadColumn(), TextColumn("{task.description}", markup=False))
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _because(entry: JobEntry) -> str:
    return f": {entry.reason}" if entry.reason else ""
