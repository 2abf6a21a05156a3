"""Uploads files as ingest jobs and follows the jobs, across lost connections and around unreadable files."""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from edge_rag.cli.files.walk import FoundFile
from edge_rag.client import CallStatus, Client, ClientError, JobEntry, JobProgress, OutgoingDocument, RetryPolicy
from edge_rag.client.errors import unreadable_reply
from edge_rag.core.documents.jobs import Job, JobDocumentState, JobId, JobState

Report = JobEntry | JobProgress


@dataclass(frozen=True, slots=True)
class _ThreadEnded:
    """A thread has no more events; ``error`` is what ended it early, or None."""

    error: ClientError | None


@dataclass(slots=True)
class UploadProgress:
    """Uploads on one thread and watches each job on another; merges their events."""

    client: Client
    running: dict[JobId, int] = field(default_factory=dict)
    _events: queue.SimpleQueue[Job | JobEntry | JobProgress | _ThreadEnded] = field(default_factory=queue.SimpleQueue)

    def follow(self, events: Iterator[Job | JobEntry]) -> Iterator[Report]:
        """Yields events until the upload is complete and every job has ended."""
        self._start(events)
        threads, watched = 1, False
        latest: JobId | None = None
        while threads:
            event = self._events.get()
            match event:
                case Job():
                    latest, watched = event.job_id, False
                case JobEntry():
                    if event.state is JobDocumentState.QUEUED and latest is not None:
                        if not watched:  # a job survives a restart of the daemon from its first document on
                            self.running[latest] = 0
                            self._start(self.client.watch_job(latest))
                            threads, watched = threads + 1, True
                        if latest in self.running:
                            self.running[latest] += 1
                    yield event
                case JobProgress():
                    if event.job.state is not JobState.RUNNING:
                        self.running.pop(event.job.job_id, None)
                    yield event
                case _ThreadEnded(error=error):
                    threads -= 1
                    if error is not None:
                        raise error

    def _start(self, events: Iterator[Job | JobEntry] | Iterator[JobProgress]) -> None:
        threading.Thread(target=self._consume, args=(events,), name="upload", daemon=True).start()

    def _consume(self, events: Iterator[Job | JobEntry] | Iterator[JobProgress]) -> None:
        error: ClientError | None = unreadable_reply("the documents could not be watched")
        try:
            for event in events:
                self._events.put(event)
            error = None
        except ClientError as failure:
            error = failure
        finally:
            self._events.put(_ThreadEnded(error))


_THIS_DOCUMENT_ONLY: Final = frozenset({CallStatus.INTERNAL, CallStatus.UNKNOWN})


@dataclass(slots=True)
class _Outgoing:
    """The documents of files; files that cannot be opened are skipped and recorded with the reason."""

    files: Sequence[FoundFile]
    metadata: Mapping[str, object]
    unreadable: dict[str, str] = field(default_factory=dict)
    sending: str = ""

    def __iter__(self) -> Iterator[OutgoingDocument]:
        for file in self.files:
            try:
                content = file.path.open("rb")
            except OSError as error:
                self.unreadable[file.name] = _unreadable(error)
                continue
            with content:
                self.sending = file.name
                yield OutgoingDocument(file.name, _opener(file.path), metadata=self.metadata)


def upload(
    client: Client, files: Sequence[FoundFile], collection: str, metadata: Mapping[str, object], retry: RetryPolicy
) -> Iterator[Job | JobEntry]:
    """Uploads files until each is accepted or rejected.

    After a lost connection or a file that blocks the others, the rest is uploaded to a further job. A file without an
    acknowledgement is uploaded again, which is idempotent.

    Args:
        retry: When to retry a daemon that was reached before.
    """
    remaining = {file.name: file for file in files}
    failures, waited_s, reached = 0, 0.0, False
    while remaining:
        outgoing = _Outgoing(tuple(remaining.values()), metadata)
        failed: tuple[str, str] | None = None
        delay_s: float | None = None
        try:
            for event in client.start_ingest(outgoing, collection=collection):
                reached = True
                if isinstance(event, JobEntry):
                    failures, waited_s = 0, 0.0
                    remaining.pop(event.name, None)
                yield event
        except OSError as error:
            failed = outgoing.sending, _unreadable(error)
        except ClientError as error:
            waiting = [name for name in remaining if name not in outgoing.unreadable]
            if waiting and _concerns_one_document(error):
                failed = waiting[0], str(error)
            else:
                failures += 1
                delay_s = retry.delay(error, failures, waited_s, random.random(), reached=reached)
                if delay_s is None:
                    raise
        else:
            if remaining.keys() - outgoing.unreadable.keys():
                raise unreadable_reply("the daemon did not report every document")
        for name, reason in (*outgoing.unreadable.items(), *(() if failed is None else (failed,))):
            if remaining.pop(name, None) is not None:
                yield rejected(name, reason)
        if delay_s is not None:
            time.sleep(delay_s)
            waited_s += delay_s


def rejected(name: str, reason: str) -> JobEntry:
    """Returns the entry of a file that was not uploaded."""
    return JobEntry("", name, 0, JobDocumentState.REJECTED, reason, None)


def _concerns_one_document(error: ClientError) -> bool:
    """Whether a call failed because of the document that was being sent."""
    of_name = error.status is CallStatus.INVALID_ARGUMENT and error.message.startswith("name:")
    return of_name or error.status in _THIS_DOCUMENT_ONLY


def _unreadable(error: OSError) -> str:
    return f"cannot be read: {error.strerror or error}"


def _opener(path: Path) -> Callable[[], BinaryIO]:
    return lambda: path.open("rb")
