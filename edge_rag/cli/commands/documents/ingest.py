"""``edge-rag ingest``."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from edge_rag.cli import options
from edge_rag.cli.commands.documents.jobs import doing, job_object
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.files.upload import Report, Storing, hand_over, rejected
from edge_rag.cli.files.walk import FoundFile, Unusable, find_files
from edge_rag.cli.options import metadata_of
from edge_rag.cli.output.terminal import emit, notes, visible
from edge_rag.client import Client, JobEntry, RetryPolicy
from edge_rag.client.errors import unreadable_reply
from edge_rag.core.documents.jobs import Job, JobDocumentState
from edge_rag.core.ids import Unrecognized

_EPILOG = """\b
Examples:
  edge-rag ingest manuals/
  edge-rag ingest --collection boiler boiler-manual.pdf notes.md
  edge-rag ingest --no-wait archive/
  edge-rag ingest --meta year=2020 --meta tag=pump --meta tag=seal manuals/pumps/
  edge-rag ingest --json manuals/ | jq -r '.documents[] | select(.status == "rejected") | .name'
"""
_RETRY: Final = RetryPolicy(max_backoff_s=120)
_FINAL: Final = tuple(state for state in JobDocumentState if state is not JobDocumentState.QUEUED)
_FAILED: Final = (JobDocumentState.REJECTED, JobDocumentState.CANCELLED)


@click.command(epilog=_EPILOG)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(path_type=Path))
@click.option("--collection", default="default", show_default=True, metavar="NAME", help="Where they go.")
@click.option(
    "--meta",
    multiple=True,
    metavar="KEY=VALUE",
    help="Metadata of all of them; may be repeated, and a key that is has all its values as tags. Wins over what a "
    "document says of itself. Numbers, true, false and dates (2020-05-31) are taken as such unless quoted.",
)
@click.option("--no-wait", is_flag=True, help="Return once they are accepted for good; a job stores them.")
@options.connection
def ingest(
    paths: tuple[Path, ...],
    collection: str,
    meta: tuple[str, ...],
    no_wait: bool,
    server: str | None,
    timeout_s: float | None,
    as_json: bool,
) -> ExitCode:
    """Hands documents over: PDF, Word, PowerPoint, Excel, OpenDocument, EPUB, HTML, Markdown, mail, CSV, RTF and text.

    Directories are walked, hidden files left out. A document keeps its path relative to the PATH given as its name; one
    of that name is replaced. A file that is rejected does not stop the others, but the command then ends with code 1.

    A job stores them, and this command follows it, also over a restart of the daemon. Ctrl-C ends the following only:
    what was accepted is stored all the same, unless `edge-rag jobs cancel` ends the job.
    """
    metadata = metadata_of(meta)
    entries = list(find_files(paths))
    if not entries:
        raise click.ClickException(f"no files in {', '.join(str(path) for path in paths)}")
    with Client(server, timeout_s=timeout_s, retry=_RETRY) as client:
        return (_accept if no_wait else _store)(client, entries, collection, metadata, as_json)


class _Screen:
    """What is shown while files are stored: a line for each that is done and, on a terminal, a bar.

    Args:
        files: What is handed over.
        as_json: Whether standard output is kept for JSON.
    """

    def __init__(self, files: Sequence[FoundFile], as_json: bool) -> None:
        self._as_json = as_json
        self._sizes = {file.name: _size(file) for file in files}
        self._stored = self._done = 0
        self._problem = ""
        columns = (BarColumn(), DownloadColumn(), TextColumn("{task.fields[files]}"))
        self.progress = Progress(
            *columns,
            TextColumn("{task.description}", markup=False),
            console=(console := notes()),
            transient=True,
            disable=not console.is_terminal,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._bar = self.progress.add_task("", total=sum(self._sizes.values()), files="")

    def settled(self, entry: JobEntry) -> None:
        """Says what became of a file."""
        self._done += entry.name in self._sizes
        self._stored += self._sizes.get(entry.name, 0)
        if self._as_json:
            return
        line = visible(_line(entry))
        if self.progress.disable or not sys.stdout.isatty():
            click.echo(line)
        else:
            self.progress.console.print(line)

    def show(self, report: Report) -> None:
        """Brings the bar up to date; says, once, what keeps the daemon from storing."""
        if isinstance(report, JobEntry):
            self.progress.update(self._bar, description=visible(f"accepted {report.name}"))
        else:
            self.progress.update(self._bar, description=doing(report))
            problem = "" if report.work is None else report.work.problem
            if problem and problem != self._problem:
                self.note(f"waits: {problem}")
            self._problem = problem
        self.progress.update(self._bar, completed=self._stored, files=f"{self._done}/{len(self._sizes)} files")

    def note(self, text: str) -> None:
        """Says something on standard error."""
        self.progress.console.print(visible(text))


def _store(
    client: Client,
    entries: Sequence[FoundFile | Unusable],
    collection: str,
    metadata: Mapping[str, object],
    as_json: bool,
) -> ExitCode:
    """Has files stored and says what became of each."""
    files = [entry for entry in entries if isinstance(entry, FoundFile)]
    storing, screen = Storing(client), _Screen(files, as_json)
    outcomes: dict[str, JobEntry] = {}
    with screen.progress:
        for entry in entries:
            if isinstance(entry, Unusable):
                screen.settled(_unusable(entry))
        try:
            for report in storing.follow(hand_over(client, files, collection, metadata, _RETRY)):
                for document in _finished(report):
                    if outcomes.setdefault(document.name, document) is document:
                        screen.settled(document)
                screen.show(report)
        except BaseException:
            for job_id, accepted in storing.running.items():
                screen.note(
                    f"job {job_id} goes on to store the {accepted} documents it accepted; "
                    f"`edge-rag jobs watch {job_id}` follows it, `edge-rag jobs cancel {job_id}` ends it"
                )
            raise
    if any(file.name not in outcomes for file in files):
        raise unreadable_reply("the daemon did not say what became of every document")
    done = [_unusable(entry) if isinstance(entry, Unusable) else outcomes[entry.name] for entry in entries]
    counts = Counter(entry.state for entry in done)
    if as_json:
        emit(_as_json(done, counts))
    else:
        notes().print(", ".join(f"{counts[state]} {state.value}" for state in _told(counts) if counts[state]))
    return ExitCode.FAILURE if any(_failed(state) for state in counts) else ExitCode.OK


def _accept(
    client: Client,
    entries: Sequence[FoundFile | Unusable],
    collection: str,
    metadata: Mapping[str, object],
    as_json: bool,
) -> ExitCode:
    """Hands files over and says which job stores them."""
    files = [entry for entry in entries if isinstance(entry, FoundFile)]
    refused = [_unusable(entry) for entry in entries if isinstance(entry, Unusable)]
    jobs: list[Job] = []
    accepted: list[str] = []
    for event in hand_over(client, files, collection, metadata, _RETRY):
        if isinstance(event, Job):
            jobs.append(event)
        elif event.state is JobDocumentState.REJECTED:
            refused.append(event)
        else:
            accepted.append(event.name)
            if not as_json:
                click.echo(visible(f"accepted   {event.name}"))
    if as_json:
        emit(
            {
                "job": job_object(jobs[-1]) if jobs else None,
                "earlier_jobs": [job_object(job) for job in jobs[:-1]],
                "accepted": accepted,
                "rejected": [{"name": entry.name, "reason": entry.reason} for entry in refused],
            }
        )
    else:
        for entry in refused:
            click.echo(visible(_line(entry)))
        for job in jobs:
            notes().print(f"job {job.job_id} stores them; `edge-rag jobs watch {job.job_id}` follows it")
    return ExitCode.FAILURE if refused else ExitCode.OK


def _finished(report: Report) -> Iterable[JobEntry]:
    documents = (report,) if isinstance(report, JobEntry) else report.documents
    return (document for document in documents if document.state is not JobDocumentState.QUEUED)


def _told(counts: Iterable[JobDocumentState | Unrecognized]) -> Iterator[JobDocumentState | Unrecognized]:
    """Yields the states that a report counts, and what else came."""
    yield from _FINAL
    yield from (state for state in counts if isinstance(state, Unrecognized))


def _failed(state: JobDocumentState | Unrecognized) -> bool:
    """Whether a document is not known to be stored."""
    return isinstance(state, Unrecognized) or state in _FAILED


def _unusable(entry: Unusable) -> JobEntry:
    return rejected(entry.name, entry.reason)


def _size(file: FoundFile) -> int:
    try:
        return file.path.stat().st_size
    except OSError:
        return 0


def _line(entry: JobEntry) -> str:
    reason = f": {entry.reason}" if entry.reason else ""
    if entry.chunks is None:
        return f"{entry.state.value:<9}  {entry.name}{reason}"
    pages = f"{entry.pages} pages, " if entry.pages is not None else ""
    return f"{entry.state.value:<9}  {entry.name} ({pages}{entry.chunks} passages){reason}"


def _as_json(done: Sequence[JobEntry], counts: Counter[JobDocumentState | Unrecognized]) -> dict[str, Any]:
    documents = [
        {
            "name": entry.name,
            "status": entry.state.value,
            "reason": entry.reason,
            "id": entry.document_id,
            "pages": entry.pages,
            "chunks": entry.chunks,
        }
        for entry in done
    ]
    return {"documents": documents, **{state.value: counts[state] for state in _told(counts)}}
