"""Adds and verifies models while a daemon runs: one job at a time, in a process of its own that ends with the daemon.

The process has the limits of every conversion: the memory that is free when it starts, the lowest priority, and the
kernel kills it first. This module runs in it too, as a program.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import IO, Any, Final

from edge_rag.core.limits.limited_process import kill_child
from edge_rag.core.monitoring.followers import Followers
from edge_rag.errors import EdgeRagError, JobNotFound, NotReady
from edge_rag.model_store.directory import StoreDirectory
from edge_rag.model_store.program import start_program
from edge_rag.model_store.source import AddRequest, GgufSource, ModelPrecision, parse_source
from edge_rag.runtime.model_folder.manifest import ModelRole

_THIS: Final = "edge_rag.model_store.jobs"
_REPORT_S: Final = 0.2
"""Least time between two reports of progress within a step, seconds."""
_MAX_LINE_BYTES: Final = 1 << 16
_MAX_DETAIL: Final = 200
_NICE: Final = 10


class ModelJobKind(Enum):
    """The work of a job.

    ADD: Adds a model. VERIFY: Compares every byte of a model with its manifest.
    """

    ADD = "add"
    VERIFY = "verify"


class ModelJobState(Enum):
    """State of a job.

    RUNNING: It runs. DONE: It ended well. FAILED: It ended otherwise; ``problem`` says why. CANCELLED: Somebody ended
    it, or the daemon did at its shutdown.
    """

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class ModelJob:
    """A job on the model store.

    Attributes:
        number: 1 for the first one since the start of the daemon.
        kind: Kind of its work.
        model: Name of the model.
        source: Where an added model comes from; empty for others.
        state: State.
        step: The current step, for people; empty before the first one.
        done_bytes: Bytes of the step that are done.
        total_bytes: Bytes of the step; None if the number is not known.
        detail: The last line of a program of the step; not trusted.
        problem: Why it failed; empty otherwise.
        started_at: Its start, UTC.
        finished_at: Its end, UTC; None before.
        change: Increases with every change of the other attributes.
    """

    number: int
    kind: ModelJobKind
    model: str
    source: str
    state: ModelJobState
    step: str
    done_bytes: int
    total_bytes: int | None
    detail: str
    problem: str
    started_at: datetime
    finished_at: datetime | None
    change: int


@dataclass(frozen=True, slots=True)
class ModelTask:
    """The task of a job.

    Attributes:
        source: Where an added model comes from, for people; empty for others.
        arguments: For the process, as JSON.
    """

    kind: ModelJobKind
    model: str
    source: str
    arguments: Mapping[str, Any]


def task_of_adding(store: Path, builtin: Path, request: AddRequest) -> ModelTask:
    """Returns the task of adding a model."""
    source = request.source
    given = {"path": str(source.path), "title": source.title} if isinstance(source, GgufSource) else str(source)
    arguments = {
        "kind": ModelJobKind.ADD.value,
        "store": str(store),
        "builtin": str(builtin),
        "source": given,
        "name": request.name,
        "precision": None if request.precision is None else request.precision.value,
        "licence": request.licence,
        "role": None if request.role is None else request.role.value,
        "keys": [str(key) for key in request.keys],
        "accept_loss": request.accept_loss,
    }
    return ModelTask(ModelJobKind.ADD, request.name, str(source), arguments)


def task_of_verifying(store: Path, builtin: Path, name: str) -> ModelTask:
    """Returns the task of verifying a model; see ``task_of_adding``."""
    arguments = {"kind": ModelJobKind.VERIFY.value, "store": str(store), "builtin": str(builtin), "name": name}
    return ModelTask(ModelJobKind.VERIFY, name, "", arguments)


class ModelJobs:
    """Runs jobs on the model store, one at a time. May be used from any thread."""

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._latest: ModelJob | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._cancelled = False
        self._closed = False
        self._followers = Followers()

    def latest(self) -> ModelJob | None:
        """Returns the running or last job; None before the first."""
        return self._latest

    def start(self, task: ModelTask, on_end: Callable[[ModelJob], None]) -> ModelJob:
        """Starts a job.

        Args:
            on_end: Called on the job's thread with the ended job.

        Raises:
            NotReady: Another job is running, or the daemon is shutting down.
        """
        with self._lock:
            if self._closed:
                raise NotReady("the daemon is shutting down")
            running = self._latest
            if running is not None and running.state is ModelJobState.RUNNING:
                raise NotReady(f"the model {running.model} is being added or verified; wait until that has ended")
            number = 1 if running is None else running.number + 1
            state, began = ModelJobState.RUNNING, self._now()
            job = ModelJob(number, task.kind, task.model, task.source, state, "", 0, None, "", "", began, None, 1)
            process = _start(task)
            self._latest, self._process, self._cancelled = job, process, False
            store = StoreDirectory(Path(task.arguments["store"]))
            self._thread = threading.Thread(target=self._watch, args=(process, store, on_end), name="model-job")
            self._thread.start()
        self._followers.wake()
        return job

    def cancel(self, number: int) -> ModelJob:
        """Ends a job if it is running; returns it. Files that it fetched are kept for the next attempt."""
        with self._lock:
            job = self._known(number)
            thread = self._thread if job.state is ModelJobState.RUNNING else None
            if thread is not None:
                self._cancelled = True
                self._kill()
        if thread is not None:
            thread.join()
        return self._known(number)

    async def follow(self, number: int, after: int) -> AsyncGenerator[ModelJob, None]:
        """Yields the present state of a job and further ones as it changes; ends with the job.

        Args:
            after: Number of the change that was seen last; 0 for none.
        """
        self._known(number)
        with self._followers.follow() as changed:
            while True:
                changed.clear()
                closed, job = self._closed, self._latest
                if job is None or job.number != number:
                    return
                if job.change > after:
                    after = job.change
                    yield job
                if closed or job.state is not ModelJobState.RUNNING:
                    return
                await changed.wait()

    def close(self) -> None:
        """Ends a running job and its followers; no other job starts."""
        with self._lock:
            self._closed = self._cancelled = True
            self._kill()
            thread = self._thread
        if thread is not None:
            thread.join()
        self._followers.wake()

    def _kill(self) -> None:
        if self._process is not None:
            kill_child(self._process)

    def _known(self, number: int) -> ModelJob:
        if self._latest is None or self._latest.number != number:
            raise JobNotFound(str(number))
        return self._latest

    def _watch(
        self, process: subprocess.Popen[bytes], store: StoreDirectory, on_end: Callable[[ModelJob], None]
    ) -> None:
        problem: str | None = None
        assert process.stdout is not None
        with process.stdout as reports:
            while line := reports.readline(_MAX_LINE_BYTES):
                report = json.loads(line)
                if "problem" in report:
                    problem = report["problem"]
                else:
                    self._change(**report)
        status = process.wait()
        if process.stdin is not None:
            process.stdin.close()
        if problem is None:
            problem = _ended(status)
            # The remains of a killed process take space; those that cannot be removed now go with the next change.
            with contextlib.suppress(EdgeRagError, OSError), store.changing():
                pass
        with self._lock:
            state = ModelJobState.FAILED if problem else ModelJobState.DONE
            if problem and self._cancelled:
                state, problem = ModelJobState.CANCELLED, ""
            self._process = None
        self._change(state=state, problem=problem, finished_at=self._now(), detail="")
        job = self._latest
        assert job is not None
        on_end(job)

    def _change(self, **values: Any) -> None:
        with self._lock:
            assert self._latest is not None
            self._latest = replace(self._latest, change=self._latest.change + 1, **values)
        self._followers.wake()


def _start(task: ModelTask) -> subprocess.Popen[bytes]:
    try:
        return start_program(_THIS, [json.dumps(task.arguments)], os.environ, nice=_NICE)[0]
    except OSError as error:
        raise NotReady(f"the process of the job could not be started: {error}") from error


def _ended(status: int) -> str:
    if status == -signal.SIGKILL:
        return "its process was ended, most likely because memory is short: end other programs, or use a larger machine"
    return "its process was ended by signal " + str(-status) if status < 0 else f"its process failed, status {status}"


class _Reports:
    """Writes progress as lines of JSON: the attributes of ``ModelJob`` that change."""

    def __init__(self, output: IO[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._output = output
        self._clock = clock
        self._done = 0
        self._detail = ""
        self._reported_at = 0.0

    def begin(self, what: str, total_bytes: int | None = None) -> None:
        """Reports a new step."""
        self._done, self._detail, self._reported_at = 0, "", self._clock()
        self.write(step=what, done_bytes=0, total_bytes=total_bytes, detail="")

    def advance(self, done_bytes: int) -> None:
        """Reports bytes, unless the last report is recent."""
        self._done += done_bytes
        self._report()

    def detail(self, line: str) -> None:
        """Reports a line, unless the last report is recent."""
        self._detail = line[:_MAX_DETAIL]
        self._report()

    def write(self, **values: object) -> None:
        """Writes a report."""
        self._output.write(json.dumps(values) + "\n")
        self._output.flush()

    def _report(self) -> None:
        now = self._clock()
        if now - self._reported_at >= _REPORT_S:
            self._reported_at = now
            self.write(done_bytes=self._done, detail=self._detail)


def main(arguments: Mapping[str, Any]) -> None:
    """Executes a task; prints reports, the last of which says whether there was a problem."""
    from edge_rag.model_store.store import ModelStore

    reports = _Reports(os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8"))
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no report
    store = ModelStore(Path(arguments["store"]), Path(arguments["builtin"]))
    problem = ""
    try:
        if arguments["kind"] == ModelJobKind.VERIFY.value:
            size = sum(record.bytes for record in store.manifest(arguments["name"]).files.values())
            reports.begin("comparing every byte with the manifest", size)
            store.verify(arguments["name"], reports.advance)
        else:
            store.add(_request(arguments), reports)
    except (EdgeRagError, OSError) as error:
        problem = str(error)
    reports.write(problem=problem)


def _request(arguments: Mapping[str, Any]) -> AddRequest:
    given, precision, role = arguments["source"], arguments["precision"], arguments["role"]
    source = parse_source(given) if isinstance(given, str) else GgufSource(Path(given["path"]), given["title"])
    return AddRequest(
        source,
        arguments["name"],
        None if precision is None else ModelPrecision(precision),
        arguments["licence"],
        None if role is None else ModelRole(role),
        tuple(map(Path, arguments["keys"])),
        arguments["accept_loss"],
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
