"""``edge-rag ingest``: Ingests documents."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from edge_rag.cli import options
from edge_rag.cli.commands.documents.jobs import progress_text
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.files.selection import FileSelection, is_system_folder
from edge_rag.cli.files.walk import FoundFile, UnusableFile, find_files
from edge_rag.cli.output.terminal import counted, emit, error_console, note, print_line, printable
from edge_rag.core.documents.jobs import Job, JobDocumentState
from edge_rag.core.ids import Unrecognized
from edge_rag.core.shapes.encoder import encode

if TYPE_CHECKING:
    from edge_rag.cli.files.upload import Report
    from edge_rag.client import Client, JobEntry

_EPILOG = """\b
Examples:
  edge-rag ingest manuals/
  edge-rag ingest --collection boiler boiler-manual.pdf notes.md
  edge-rag ingest --dry-run --include '*.pdf' --exclude drafts/ manuals/
  edge-rag ingest --no-wait archive/
  edge-rag ingest --meta year=2020 --meta tag=pump --meta tag=seal manuals/pumps/
  edge-rag ingest --json manuals/ | jq -r '.documents[] | select(.status == "rejected") | .name'

\b
Patterns of --include, --exclude and of the file .edgeragignore in a folder
have the form of gitignore: *.tmp at any depth, drafts/ for folders,
/old/*.md from the folder on, ** for any folders, and in the file ! to take
files again and # for comments.
"""
_RETRY_S: Final = 120.0
_FINAL: Final = tuple(state for state in JobDocumentState if state is not JobDocumentState.QUEUED)
_ASK_BEYOND: Final = 500
"""Files of folders that are ingested without asking, where somebody can answer."""

_ALIKE: Final = 3
"""Files that are rejected for one reason and named; the others are counted."""

_KINDS: Final = 5
"""Kinds of files that are named; the others are counted."""

_FAILED: Final = (JobDocumentState.REJECTED, JobDocumentState.CANCELLED)


@click.command(epilog=_EPILOG)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(path_type=Path))
@options.target_collection
@click.option(
    "--meta",
    multiple=True,
    metavar="KEY=VALUE",
    help="Metadata of all documents; may be repeated; a repeated key gets all its values as tags. Overrides the "
    "documents' own metadata. Unquoted numbers, true, false and dates (2020-05-31) keep their type.",
)
@click.option("--no-wait", is_flag=True, help="Return when the documents are durably accepted; a job stores them.")
@click.option("--include", multiple=True, metavar="PATTERN", help="Only files of folders that match; repeatable.")
@click.option("--exclude", multiple=True, metavar="PATTERN", help="No files of folders that match; repeatable.")
@click.option("--dry-run", is_flag=True, help="Only list what would be ingested; calls no daemon.")
@click.option("--yes", is_flag=True, help=f"Do not ask about folders of more than {_ASK_BEYOND} files.")
@click.option("--system-folders", is_flag=True, help="Also ingest folders of the operating system.")
@click.option("-q", "--quiet", is_flag=True, help="Print only rejected files.")
@options.connection
def ingest(
    paths: tuple[Path, ...],
    collection: str,
    meta: tuple[str, ...],
    no_wait: bool,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    system_folders: bool,
    quiet: bool,
    server: str | None,
    timeout_s: float | None,
    as_json: bool,
) -> ExitCode:
    """Ingests documents.

    Formats: PDF, Word, PowerPoint, Excel, OpenDocument, EPUB, HTML, Markdown, mail, CSV, RTF and text.

    Directories are walked without hidden files and without what their .edgeragignore names. The name of a document is
    its path relative to PATH; a document of the same name is replaced. A rejected file does not stop the others; the
    command then exits with 1.

    A job of the daemon stores the documents, and this command watches it, also across a restart of the daemon. Ctrl-C
    stops watching only: accepted documents are stored unless `edge-rag jobs cancel` cancels the job.
    """
    metadata = options.parse_metadata(meta)
    folders = [path for path in paths if path.is_dir()]
    system = [] if system_folders else [str(path) for path in folders if is_system_folder(path)]
    if system:
        raise click.UsageError(
            f"{', '.join(system)} holds the system's own files; name a folder of documents, or give --system-folders"
        )
    entries = list(find_files(paths, FileSelection.of(include, exclude)))
    if not entries:
        raise click.ClickException(f"no files in {', '.join(str(path) for path in paths)}")
    files = [entry for entry in entries if isinstance(entry, FoundFile)]
    if dry_run:
        return _list(entries, files, collection, as_json, quiet)
    if folders and not as_json and not quiet:
        note(f"ingesting {_described(files)} into collection {collection}", "dim")
    if folders and len(files) > _ASK_BEYOND and not (yes or as_json) and on_terminal():
        click.confirm(f"Ingest {counted(len(files), 'file')}?", abort=True, err=True)
    with options.open_client(server, timeout_s, _RETRY_S) as client:
        return (_accept if no_wait else _store)(client, entries, collection, metadata, as_json, quiet)


def on_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _list(
    entries: Sequence[FoundFile | UnusableFile],
    files: Sequence[FoundFile],
    collection: str,
    as_json: bool,
    quiet: bool,
) -> ExitCode:
    """Lists what would be ingested; the daemon decides about the content of files."""
    rejected = [entry for entry in entries if isinstance(entry, UnusableFile)]
    if as_json:
        emit(
            {
                "would_ingest": [{"name": file.name, "bytes": _size(file)} for file in files],
                "would_reject": [{"name": entry.name, "reason": entry.reason} for entry in rejected],
                "collection": collection,
            }
        )
        return ExitCode.FAILURE if rejected else ExitCode.OK
    for file in () if quiet else files:
        print_line(f"would ingest  {file.name} ({counted(_size(file), 'byte')})")
    for entry in rejected:
        print_line(f"would reject  {entry.name}: {entry.reason}")
    note(f"would ingest {_described(files)} into collection {collection}", "dim")
    return ExitCode.FAILURE if rejected else ExitCode.OK


def _described(files: Sequence[FoundFile]) -> str:
    from rich.filesize import decimal

    kinds = Counter(file.path.suffix.lower() or "without an ending" for file in files).most_common()
    named = [f"{count:,} {kind}" for kind, count in kinds[:_KINDS]]
    if others := sum(count for _, count in kinds[_KINDS:]):
        named.append(f"{others:,} of other kinds")
    size = decimal(sum(map(_size, files)))
    return f"{counted(len(files), 'file')} ({', '.join([size, *named])})"


class _Rejections:
    """Counts rejected files by their reason; only the first of each are named."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def names(self, entry: JobEntry) -> bool:
        if entry.state is not JobDocumentState.REJECTED:
            return True
        self._counts[entry.reason] += 1
        return self._counts[entry.reason] <= _ALIKE

    def others(self) -> Iterator[str]:
        """Yields a line for the files that were not named, for each reason."""
        for reason, count in self._counts.items():
            if count > _ALIKE:
                yield printable(f"rejected   {count - _ALIKE:,} more: {reason}")


class _ProgressView:
    """Shows a line per finished file and, on a terminal, a progress bar.

    Args:
        quiet: Whether only rejected files are shown.
    """

    def __init__(self, files: Sequence[FoundFile], as_json: bool, quiet: bool) -> None:
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        self._as_json = as_json
        self._quiet = quiet
        self._rejections = _Rejections()
        self._sizes = {file.name: _size(file) for file in files}
        self._stored = self._done = 0
        self._problem = ""
        columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TextColumn("{task.fields[files]}"))
        self.progress = Progress(
            *columns,
            TextColumn("{task.description}", markup=False),
            console=(console := error_console()),
            transient=True,
            disable=quiet or not console.is_terminal,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._bar = self.progress.add_task("", total=sum(self._sizes.values()), files="")

    def show_result(self, entry: JobEntry) -> None:
        self._done += entry.name in self._sizes
        self._stored += self._sizes.get(entry.name, 0)
        if self._as_json or (self._quiet and not _failed(entry.state)) or not self._rejections.names(entry):
            return
        self._print(printable(_line(entry)))

    def show_others(self) -> None:
        for line in () if self._as_json else self._rejections.others():
            self._print(line)

    def _print(self, line: str) -> None:
        if self.progress.disable or not sys.stdout.isatty():
            click.echo(line)
        else:
            self.progress.console.print(line)

    def show_progress(self, report: Report) -> None:
        """Updates the bar; prints once why the daemon cannot store documents."""
        from edge_rag.client import JobEntry

        if isinstance(report, JobEntry):
            self.progress.update(self._bar, description=printable(f"accepted {report.name}"))
        else:
            self.progress.update(self._bar, description=progress_text(report))
            problem = "" if report.work is None else report.work.problem
            if problem and problem != self._problem:
                self.note(f"waiting: {problem}")
            self._problem = problem
        self.progress.update(self._bar, completed=self._stored, files=f"{self._done}/{len(self._sizes)} files")

    def note(self, text: str) -> None:
        self.progress.console.print(printable(text))


def _store(
    client: Client,
    entries: Sequence[FoundFile | UnusableFile],
    collection: str,
    metadata: Mapping[str, object],
    as_json: bool,
    quiet: bool,
) -> ExitCode:
    """Uploads files, watches the jobs and reports each file."""
    from edge_rag.cli.files.upload import UploadProgress, upload
    from edge_rag.client import RetryPolicy
    from edge_rag.client.errors import unreadable_reply

    files = [entry for entry in entries if isinstance(entry, FoundFile)]
    uploading, view = UploadProgress(client), _ProgressView(files, as_json, quiet)
    events = upload(client, files, collection, metadata, RetryPolicy(max_backoff_s=_RETRY_S))
    outcomes: dict[str, JobEntry] = {}
    with view.progress:
        for entry in entries:
            if isinstance(entry, UnusableFile):
                view.show_result(_unusable(entry))
        try:
            for report in uploading.follow(events):
                for document in _finished(report):
                    if outcomes.setdefault(document.name, document) is document:
                        view.show_result(document)
                view.show_progress(report)
            view.show_others()
        except BaseException:
            for job_id, accepted in uploading.running.items():
                view.note(
                    f"job {job_id} continues to store the {counted(accepted, 'document')} it accepted; "
                    f"`edge-rag jobs watch {job_id}` watches it, `edge-rag jobs cancel {job_id}` cancels it"
                )
            raise
    if any(file.name not in outcomes for file in files):
        raise unreadable_reply("the daemon did not report every document")
    done = [_unusable(entry) if isinstance(entry, UnusableFile) else outcomes[entry.name] for entry in entries]
    counts = Counter(entry.state for entry in done)
    if as_json:
        emit(_as_json(done, counts))
    elif not quiet:
        note(", ".join(f"{counts[state]} {state.value}" for state in _reported_states(counts) if counts[state]))
    return ExitCode.FAILURE if any(_failed(state) for state in counts) else ExitCode.OK


def _accept(
    client: Client,
    entries: Sequence[FoundFile | UnusableFile],
    collection: str,
    metadata: Mapping[str, object],
    as_json: bool,
    quiet: bool,
) -> ExitCode:
    """Uploads files and prints the jobs that store them."""
    from edge_rag.cli.files.upload import upload
    from edge_rag.client import RetryPolicy

    files = [entry for entry in entries if isinstance(entry, FoundFile)]
    rejected = [_unusable(entry) for entry in entries if isinstance(entry, UnusableFile)]
    jobs: list[Job] = []
    accepted: list[str] = []
    for event in upload(client, files, collection, metadata, RetryPolicy(max_backoff_s=_RETRY_S)):
        if isinstance(event, Job):
            jobs.append(event)
        elif event.state is JobDocumentState.REJECTED:
            rejected.append(event)
        else:
            accepted.append(event.name)
            if not as_json and not quiet:
                print_line(f"accepted   {event.name}")
    if as_json:
        emit(
            {
                "job": encode(jobs[-1]) if jobs else None,
                "earlier_jobs": [encode(job) for job in jobs[:-1]],
                "accepted": accepted,
                "rejected": [{"name": entry.name, "reason": entry.reason} for entry in rejected],
            }
        )
    else:
        alike = _Rejections()
        for entry in rejected:
            if alike.names(entry):
                print_line(_line(entry))
        for line in alike.others():
            print_line(line)
        for job in () if quiet else jobs:
            note(f"job {job.job_id} stores them; `edge-rag jobs watch {job.job_id}` watches it")
    return ExitCode.FAILURE if rejected else ExitCode.OK


def _finished(report: Report) -> Iterable[JobEntry]:
    from edge_rag.client import JobEntry

    documents = (report,) if isinstance(report, JobEntry) else report.documents
    return (document for document in documents if document.state is not JobDocumentState.QUEUED)


def _reported_states(counts: Iterable[JobDocumentState | Unrecognized]) -> Iterator[JobDocumentState | Unrecognized]:
    yield from _FINAL
    yield from (state for state in counts if isinstance(state, Unrecognized))


def _failed(state: JobDocumentState | Unrecognized) -> bool:
    """Whether a document is not stored, as far as is known."""
    return isinstance(state, Unrecognized) or state in _FAILED


def _unusable(entry: UnusableFile) -> JobEntry:
    from edge_rag.cli.files.upload import rejected

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
    pages = f"{counted(entry.pages, 'page')}, " if entry.pages is not None else ""
    return f"{entry.state.value:<9}  {entry.name} ({pages}{counted(entry.chunks, 'passage')}){reason}"


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
    return {"documents": documents, **{state.value: counts[state] for state in _reported_states(counts)}}
