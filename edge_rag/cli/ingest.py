"""``edge-rag ingest``."""

from __future__ import annotations

import io
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from edge_rag.cli import options
from edge_rag.cli.exits import ExitCode
from edge_rag.cli.handing_over import hand_over
from edge_rag.cli.meta import metadata_of
from edge_rag.cli.terminal import emit, notes, visible
from edge_rag.cli.walk import FoundFile, Unusable, find_files
from edge_rag.client import CallStatus, Client, ClientError, RetryPolicy
from edge_rag.core.document import IngestOutcome, IngestStatus
from edge_rag.core.metadata import Metadata

_EPILOG = """\b
Examples:
  edge-rag ingest manuals/
  edge-rag ingest --collection boiler boiler-manual.pdf notes.md
  edge-rag ingest --no-wait archive/
  edge-rag ingest --meta year=2020 --meta tag=pump --meta tag=seal manuals/pumps/
  edge-rag ingest --json manuals/ | jq -r '.documents[] | select(.status == "rejected") | .name'
"""
_RETRY = RetryPolicy(patience_s=60)
_THIS_DOCUMENT_ONLY = frozenset({CallStatus.INVALID_ARGUMENT, CallStatus.INTERNAL, CallStatus.UNKNOWN})


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
    """
    metadata = metadata_of(meta)
    entries = list(find_files(paths))
    if not entries:
        raise click.ClickException(f"no files in {', '.join(str(path) for path in paths)}")
    if no_wait:
        with Client(server, timeout_s=timeout_s) as client:
            return hand_over(client, entries, collection, metadata, as_json)
    console = notes()
    outcomes: list[IngestOutcome] = []
    with Client(server, timeout_s=timeout_s, retry=_RETRY) as client, _progress(console) as progress:
        task = progress.add_task("", total=sum(_size(entry) for entry in entries))
        for entry in entries:
            progress.update(task, description=visible(entry.name))
            outcome = _take(client, entry, collection, metadata, lambda count: progress.advance(task, count))
            outcomes.append(outcome)
            if not as_json:
                _say(visible(_line(outcome)), progress)
    counts = Counter(outcome.status for outcome in outcomes)
    if as_json:
        emit(_as_json(outcomes, counts))
    else:
        console.print(", ".join(f"{counts[status]} {status.value}" for status in IngestStatus if counts[status]))
    return ExitCode.FAILURE if counts[IngestStatus.REJECTED] else ExitCode.OK


class _CountedFile(io.FileIO):
    def __init__(self, path: Path, on_read: Callable[[int], None]) -> None:
        super().__init__(path)
        self._on_read = on_read

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(-1 if size is None else size) or b""
        self._on_read(len(data))
        return data


def _take(
    client: Client,
    entry: FoundFile | Unusable,
    collection: str,
    metadata: Metadata,
    on_read: Callable[[int], None],
) -> IngestOutcome:
    if isinstance(entry, Unusable):
        return IngestOutcome(entry.name, IngestStatus.REJECTED, reason=entry.reason)
    try:
        return client.ingest(
            entry.name, lambda: _CountedFile(entry.path, on_read), collection=collection, metadata=metadata
        )
    except OSError as error:
        reason = error.strerror or str(error)
        return IngestOutcome(entry.name, IngestStatus.REJECTED, reason=f"cannot be read: {reason}")
    except ClientError as error:
        if error.status not in _THIS_DOCUMENT_ONLY:
            raise
        return IngestOutcome(entry.name, IngestStatus.REJECTED, reason=str(error))


def _size(entry: FoundFile | Unusable) -> int:
    try:
        return entry.path.stat().st_size if isinstance(entry, FoundFile) else 0
    except OSError:
        return 0


def _progress(console: Console) -> Progress:
    columns = (BarColumn(), DownloadColumn(), TextColumn("{task.description}", markup=False))
    return Progress(
        *columns,
        console=console,
        transient=True,
        disable=not console.is_terminal,
        redirect_stdout=False,
        redirect_stderr=False,
    )


def _say(line: str, progress: Progress) -> None:
    if progress.disable or not sys.stdout.isatty():
        click.echo(line)
    else:
        progress.console.print(line)


def _line(outcome: IngestOutcome) -> str:
    if outcome.document is None:
        return f"{outcome.status.value:<9}  {outcome.name}: {outcome.reason}"
    pages = f"{outcome.document.pages} pages, " if outcome.document.pages is not None else ""
    return f"{outcome.status.value:<9}  {outcome.name} ({pages}{outcome.document.chunks} passages)"


def _as_json(outcomes: list[IngestOutcome], counts: Counter[IngestStatus]) -> dict[str, Any]:
    documents = [
        {
            "name": outcome.name,
            "status": outcome.status.value,
            "reason": outcome.reason,
            "id": outcome.document.document_id if outcome.document else None,
            "pages": outcome.document.pages if outcome.document else None,
            "chunks": outcome.document.chunks if outcome.document else None,
        }
        for outcome in outcomes
    ]
    return {"documents": documents, **{status.value: counts[status] for status in IngestStatus}}
