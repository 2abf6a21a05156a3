"""Handing documents over as a job, without waiting for them to be stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import click

from edge_rag.cli.exits import ExitCode
from edge_rag.cli.jobs import job_object
from edge_rag.cli.terminal import emit, notes, visible
from edge_rag.cli.walk import FoundFile, Unusable
from edge_rag.client import Client
from edge_rag.client.upload import OutgoingDocument
from edge_rag.core.jobs import Job, JobDocumentState


@dataclass(slots=True)
class _Outgoing:
    """The documents of a list of files; those that cannot be opened are left out and kept with the reason."""

    entries: Sequence[FoundFile | Unusable]
    metadata: Mapping[str, object]
    refused: list[tuple[str, str]] = field(default_factory=list)

    def __iter__(self) -> Iterator[OutgoingDocument]:
        for entry in self.entries:
            if isinstance(entry, Unusable):
                self.refused.append((entry.name, entry.reason))
                continue
            try:
                content = entry.path.open("rb")
            except OSError as error:
                self.refused.append((entry.name, f"cannot be read: {error.strerror or error}"))
                continue
            with content:
                yield OutgoingDocument(entry.name, _opener(entry.path), metadata=self.metadata)


def hand_over(
    client: Client,
    entries: Sequence[FoundFile | Unusable],
    collection: str,
    metadata: Mapping[str, object],
    as_json: bool,
) -> ExitCode:
    """Hands files over and says which job stores them."""
    outgoing = _Outgoing(entries, metadata)
    job: Job | None = None
    accepted: list[str] = []
    refused: list[tuple[str, str]] = []
    for event in client.start_ingest(outgoing, collection=collection):
        if isinstance(event, Job):
            job = event
        elif event.state is JobDocumentState.REJECTED:
            refused.append((event.name, event.reason))
        else:
            accepted.append(event.name)
            if not as_json:
                click.echo(visible(f"accepted   {event.name}"))
    refused += outgoing.refused
    if as_json:
        emit(
            {
                "job": None if job is None else job_object(job),
                "accepted": accepted,
                "rejected": [{"name": name, "reason": reason} for name, reason in refused],
            }
        )
    else:
        for name, reason in refused:
            click.echo(visible(f"rejected   {name}: {reason}"))
        if job is not None:
            notes().print(f"job {job.job_id} stores them; `edge-rag jobs watch {job.job_id}` follows it")
    return ExitCode.FAILURE if refused else ExitCode.OK


def _opener(path: Path) -> Callable[[], BinaryIO]:
    return lambda: path.open("rb")
