"""Files on their way into the library through jobs: handed over and followed at the same time."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from edge_rag.client import Client, ClientError
from edge_rag.client.failures import unreadable_reply
from edge_rag.client.values import JobEntry, JobProgress
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
