"""``edge-rag watch``: a folder whose documents follow its files."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from edge_rag.cli import options
from edge_rag.cli.exit_codes import ExitCode
from edge_rag.cli.files.folder_sync import (
    Fate,
    Look,
    Remembered,
    Work,
    look_at,
    read_state,
    state_file,
    work_for,
    write_state,
)
from edge_rag.cli.output.terminal import emit, notes, visible
from edge_rag.client import CallStatus, Client, ClientError, RetryPolicy
from edge_rag.core.documents.document import IngestStatus
from edge_rag.errors import ConfigurationError

_EPILOG = """\b
Examples:
  edge-rag watch /srv/manuals --collection manuals
  edge-rag watch /mnt/share --rescan 60
  edge-rag watch /srv/manuals --collection manuals --status
"""
_RETRY = RetryPolicy(max_backoff_s=60)
_THIS_FILE_ONLY: Final = frozenset({CallStatus.INVALID_ARGUMENT, CallStatus.INTERNAL, CallStatus.UNKNOWN})
_PATIENCE_S: Final = 5.0
_FILES_A_SAVE: Final = 50


@click.command(epilog=_EPILOG)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--collection", default="default", show_default=True, metavar="NAME", help="Where they go.")
@click.option(
    "--rescan",
    "rescan_s",
    type=click.FloatRange(min=0.1),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Look through the whole folder at least this often: network shares do not tell of changes.",
)
@click.option(
    "--settle",
    "settle_s",
    type=click.FloatRange(min=0),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Hand a file over once it has not changed for this long.",
)
@click.option("--most-mib", type=click.IntRange(min=1), default=64, show_default=True, help="Largest file, MiB.")
@click.option("--once", is_flag=True, help="End when the documents are as the folder is now.")
@click.option("--status", is_flag=True, help="Only tell what failed and why; needs no daemon.")
@options.connection
def watch(
    folder: Path,
    collection: str,
    rescan_s: float,
    settle_s: float,
    most_mib: int,
    once: bool,
    status: bool,
    server: str | None,
    timeout_s: float | None,
    as_json: bool,
) -> ExitCode:
    """Has a collection's documents follow the files of a folder, until it is ended with Ctrl-C.

    New, changed and renamed files are handed over, and documents whose file is gone are deleted, if this watch brought
    them in. What fails is kept with its reason, over restarts too, and tried again when the file changes.
    """
    root = folder.absolute()
    if not status and not root.is_dir():
        raise click.UsageError(f"{folder} is no folder")
    with Client(server, timeout_s=timeout_s, retry=_RETRY) as client:
        memory = state_file(root, collection, client.address)
        watcher = _Watch(client, root, collection, most_mib << 20, memory, as_json)
        if status:
            return watcher.tell()
        with _terminated_like_interrupted(), _changes(root) as changed:
            try:
                while True:
                    wait_s = watcher.follow(settle_s, rescan_s)
                    if once and watcher.done:
                        return ExitCode.FAILURE if watcher.failures else ExitCode.OK
                    changed.wait(wait_s)
                    changed.clear()
            finally:
                watcher.save()


class _Watch:
    """One folder and what is remembered of it.

    Args:
        client: The daemon.
        root: The folder.
        collection: Where its documents go.
        most_bytes: Largest file.
        memory: Where to remember.
        as_json: Whether events are printed as JSON lines.
    """

    def __init__(
        self, client: Client, root: Path, collection: str, most_bytes: int, memory: Path, as_json: bool
    ) -> None:
        self._client = client
        self._root = root
        self._collection = collection
        self._most_bytes = most_bytes
        self._memory = memory
        self._as_json = as_json
        self._remembered = read_state(memory)
        self._before: Mapping[str, Look] = {}
        self.done = False

    @property
    def failures(self) -> dict[str, str]:
        """Reasons, by the name of the file."""
        return {name: entry.reason for name, entry in sorted(self._remembered.items()) if entry.fate is Fate.FAILED}

    def save(self) -> None:
        """Writes down what is remembered."""
        write_state(self._memory, self._remembered)

    def tell(self) -> ExitCode:
        """Prints what failed and why."""
        failures = self.failures
        if self._as_json:
            taken = len(self._remembered) - len(failures)
            emit({"taken": taken, "failed": [{"name": name, "reason": why} for name, why in failures.items()]})
            return ExitCode.OK
        for name, reason in failures.items():
            click.echo(visible(f"failed     {name}: {reason}"))
        notes().print(f"{len(self._remembered)} files, {len(failures)} failed", style="dim")
        return ExitCode.OK

    def follow(self, settle_s: float, rescan_s: float) -> float:
        """Looks once and does what is due; returns how long to wait before looking again, seconds."""
        self.done = False
        try:
            now = look_at(self._root, self._most_bytes)
            work = work_for(now, self._before, self._remembered)
            self._before = now
            self._do(work, now)
        except ConfigurationError as error:
            notes().print(visible(f"edge-rag: {error}; trying again"), style="yellow")
            return min(_PATIENCE_S, rescan_s)
        except ClientError as error:
            notes().print(visible(f"edge-rag: {error}; trying again"), style="yellow")
            return min(_PATIENCE_S, rescan_s)
        self.done = not work.unsettled
        return settle_s if work.unsettled else rescan_s

    def _do(self, work: Work, now: Mapping[str, Look]) -> None:
        due: list[Callable[[], None]] = []
        due += [lambda name=name: self._refuse(name, now[name]) for name in work.refuse]  # type: ignore[misc]
        due += [lambda name=name: self._hand_over(name, now[name]) for name in work.hand_over]  # type: ignore[misc]
        due += [lambda name=name: self._remove(name) for name in work.remove]  # type: ignore[misc]
        try:
            for number, step in enumerate(due, start=1):
                step()
                if number % _FILES_A_SAVE == 0:
                    self.save()
        finally:
            if due:
                self.save()

    def _hand_over(self, name: str, look: Look) -> None:
        known = self._remembered.get(name)
        brought_in = known is not None and known.brought_in
        try:
            path = self._root / name
            outcome = self._client.ingest(name, lambda: path.open("rb"), collection=self._collection)
        except FileNotFoundError:
            return  # gone meanwhile, as the next look tells
        except OSError as error:
            self._remember(name, Remembered(look, Fate.FAILED, f"cannot be read: {error.strerror}", brought_in))
            return
        except ClientError as error:
            if error.status not in _THIS_FILE_ONLY:
                raise
            self._remember(name, Remembered(look, Fate.FAILED, str(error), brought_in))
            return
        if outcome.status is IngestStatus.REJECTED:
            self._remember(name, Remembered(look, Fate.FAILED, outcome.reason, brought_in))
            return
        brought_in |= outcome.status is not IngestStatus.UNCHANGED
        self._remember(name, Remembered(look, Fate.TAKEN, "", brought_in), outcome.status.value)

    def _refuse(self, name: str, look: Look) -> None:
        known = self._remembered.get(name)
        self._remember(name, Remembered(look, Fate.FAILED, look.refused, known is not None and known.brought_in))

    def _remove(self, name: str) -> None:
        if self._remembered[name].brought_in:
            try:
                self._client.delete(name, collection=self._collection)
            except ClientError as error:
                if error.status is not CallStatus.NOT_FOUND:
                    raise
            self._say("removed", name, "")
        del self._remembered[name]

    def _remember(self, name: str, entry: Remembered, event: str = "failed") -> None:
        self._remembered[name] = entry
        self._say(event, name, entry.reason)

    def _say(self, event: str, name: str, reason: str) -> None:
        if self._as_json:
            emit({"event": event, "name": name, "reason": reason})
        else:
            click.echo(visible(f"{event:<9}  {name}{f': {reason}' if reason else ''}"))


@contextmanager
def _changes(root: Path) -> Iterator[threading.Event]:
    """An event that is set whenever something below a folder changes, as far as its file system tells."""
    import watchfiles

    changed, stop = threading.Event(), threading.Event()

    def follow() -> None:
        while not stop.is_set():
            try:
                for _ in watchfiles.watch(
                    root, watch_filter=None, debounce=200, rust_timeout=500, stop_event=stop, raise_interrupt=False
                ):
                    changed.set()
            except (OSError, RuntimeError) as error:
                notes().print(
                    visible(f"edge-rag: changes below {root} are only found by rescans: {error}"), style="yellow"
                )
                stop.wait(_PATIENCE_S)

    thread = threading.Thread(target=follow, name="watch", daemon=True)
    thread.start()
    try:
        yield changed
    finally:
        stop.set()
        thread.join()


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """Has SIGTERM, with which services are ended, do what Ctrl-C does."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
