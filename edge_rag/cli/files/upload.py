"""Files on their way into the library through jobs: handed over and followed at the same time.

Handing files over to jobs, over breaks of the connection and around files that cannot be taken.
"""

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
class _Over:
    """A thread has nothing more to tell; ``error`` says what ended it, if something did."""

    error: ClientError | None


@dataclass(slots=True)
class Storing:
    """Hands files over on one thread and follows each job on another; whoever iterates hears of both.

    Attributes:
        client: The daemon.
        running: Jobs that are not over yet, each with the number of documents it accepted.
    """

    client: Client
    running: dict[JobId, int] = field(default_factory=dict)
    _heard: queue.SimpleQueue[Job | JobEntry | JobProgress | _Over] = field(default_factory=queue.SimpleQueue)

    def follow(self, events: Iterator[Job | JobEntry]) -> Iterator[Report]:
        """Yields what happens, until all is handed over and every job has ended.

        Args:
            events: What is handed over, as ``hand_over`` tells it; taken on a thread of its own.

        Yields:
            Entries of what was accepted (QUEUED) or rejected while it was handed over, and the jobs' progress.

        Raises:
            ClientError: A call failed for good; what was accepted is stored all the same.
        """
        self._start(events)
        threads, latest = 1, None
        while threads:
            event = self._heard.get()
            match event:
                case Job():
                    latest = event.job_id
                    self.running[latest] = 0
                    self._start(self.client.watch_job(latest))
                    threads += 1
                case JobEntry():
                    if event.state is JobDocumentState.QUEUED and latest in self.running:
                        self.running[latest] += 1
                    yield event
                case JobProgress():
                    if event.job.state is not JobState.RUNNING:
                        self.running.pop(event.job.job_id, None)
                    yield event
                case _Over(error=error):
                    threads -= 1
                    if error is not None:
                        raise error

    def _start(self, events: Iterator[Job | JobEntry] | Iterator[JobProgress]) -> None:
        threading.Thread(target=self._listen, args=(events,), name="storing", daemon=True).start()

    def _listen(self, events: Iterator[Job | JobEntry] | Iterator[JobProgress]) -> None:
        error: ClientError | None = unreadable_reply("the documents could not be followed")
        try:
            for event in events:
                self._heard.put(event)
            error = None
        except ClientError as failure:
            error = failure
        finally:
            self._heard.put(_Over(error))


_THIS_DOCUMENT_ONLY: Final = frozenset({CallStatus.INTERNAL, CallStatus.UNKNOWN})


@dataclass(slots=True)
class _Outgoing:
    """The documents of files; those that cannot be opened are left out and kept with the reason."""

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


def hand_over(
    client: Client, files: Sequence[FoundFile], collection: str, metadata: Mapping[str, object], retry: RetryPolicy
) -> Iterator[Job | JobEntry]:
    """Hands files over until each is accepted or rejected.

    Where the connection breaks or one file keeps the others from being sent, the rest goes to a further job. A file
    whose acceptance was not heard of is handed over again, which changes nothing.

    Args:
        client: The daemon.
        files: What to hand over; names are unique.
        collection: Where to.
        metadata: What all of them get.
        retry: How long a daemon that was reached once is waited for.

    Yields:
        Each job as it begins, then each file once, QUEUED or REJECTED.

    Raises:
        ClientError: The call failed for good; what was accepted stands.
    """
    left = {file.name: file for file in files}
    failures, waited_s, reached = 0, 0.0, False
    while left:
        outgoing = _Outgoing(tuple(left.values()), metadata)
        at_fault: tuple[str, str] | None = None
        delay_s: float | None = None
        try:
            for event in client.start_ingest(outgoing, collection=collection):
                reached = True
                if isinstance(event, JobEntry):
                    failures, waited_s = 0, 0.0
                    left.pop(event.name, None)
                yield event
        except OSError as error:
            at_fault = outgoing.sending, _unreadable(error)
        except ClientError as error:
            waiting = [name for name in left if name not in outgoing.unreadable]
            if waiting and _is_of_one_document(error):
                at_fault = waiting[0], str(error)
            else:
                failures += 1
                delay_s = retry.delay(error, failures, waited_s, random.random(), reached=reached)
                if delay_s is None:
                    raise
        else:
            if left.keys() - outgoing.unreadable.keys():
                raise unreadable_reply("the daemon did not say what became of every document")
        for name, reason in (*outgoing.unreadable.items(), *(() if at_fault is None else (at_fault,))):
            if left.pop(name, None) is not None:
                yield rejected(name, reason)
        if delay_s is not None:
            time.sleep(delay_s)
            waited_s += delay_s


def rejected(name: str, reason: str) -> JobEntry:
    """Returns the entry of a file that no job was given."""
    return JobEntry("", name, 0, JobDocumentState.REJECTED, reason, None)


def _is_of_one_document(error: ClientError) -> bool:
    """Whether a call ended because of the document that it had come to."""
    of_its_name = error.status is CallStatus.INVALID_ARGUMENT and error.message.startswith("name:")
    return of_its_name or error.status in _THIS_DOCUMENT_ONLY


def _unreadable(error: OSError) -> str:
    return f"cannot be read: {error.strerror or error}"


def _opener(path: Path) -> Callable[[], BinaryIO]:
    return lambda: path.open("rb")
