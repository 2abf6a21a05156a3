"""``edge-rag watch``: Keeps a collection in sync with the files of a folder."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from edge_rag.cli import options
from edge_rag.cli.exit_codes import ExitCode, is_client_error
from edge_rag.cli.files.folder_sync import (
    FileState,
    SyncedFile,
    SyncPlan,
    SyncStatus,
    plan_sync,
    read_state,
    scan_folder,
    state_file,
    write_state,
)
from edge_rag.cli.files.watch_report import WatchReport
from edge_rag.cli.output.terminal import emit, note, print_line, sigterm_as_interrupt
from edge_rag.core.documents.document import IngestStatus
from edge_rag.errors import ConfigurationError

if TYPE_CHECKING:
    from edge_rag.client import Client

_EPILOG = """\b
Examples:
  edge-rag watch /srv/manuals --collection manuals
  edge-rag watch /mnt/share --rescan 60
  edge-rag watch /srv/manuals --collection manuals --status
"""
_RETRY_S: Final = 60.0
_FAILURES_OF_ONE_FILE: Final = frozenset({"INVALID_ARGUMENT", "INTERNAL", "UNKNOWN"})
_PAUSE_AFTER_ERROR_S: Final = 5.0
_FILES_PER_SAVE: Final = 50


@click.command(epilog=_EPILOG)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@options.target_collection
@click.option(
    "--rescan",
    "rescan_s",
    type=click.FloatRange(min=0.1),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Scan the whole folder at least this often; network shares do not report changes.",
)
@click.option(
    "--settle",
    "settle_s",
    type=click.FloatRange(min=0),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Upload a file after it has not changed for this long.",
)
@click.option("--most-mib", type=click.IntRange(min=1), default=64, show_default=True, help="Largest file, MiB.")
@click.option("--once", is_flag=True, help="Exit when the documents match the folder.")
@click.option("--status", is_flag=True, help="Only list the files that failed, with the reasons; needs no daemon.")
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
    """Keeps a collection in sync with the files of a folder.

    Runs until Ctrl-C. Files that .edgeragignore of the folder names count as absent (see `edge-rag ingest`). New,
    changed and renamed files are uploaded. Documents whose file is gone are deleted if this
    command uploaded them. Failures are kept with their reason, also across restarts, and retried when the file changes.
    """
    root = folder.absolute()
    if not status and not root.is_dir():
        raise click.UsageError(f"{folder} is not a folder")
    with options.open_client(server, timeout_s, _RETRY_S) as client:
        state_path = state_file(root, collection, client.address)
        sync = _FolderSync(client, root, collection, most_mib << 20, state_path, as_json)
        if status:
            return sync.print_failures()
        report = WatchReport(state_path, root, collection, rescan_s)
        with sigterm_as_interrupt(), _changes(root) as changed:
            try:
                while True:
                    wait_s = sync.run_once(settle_s, rescan_s)
                    if sync.scanned:
                        report.scanned(len(sync.failures))
                    if once and sync.done:
                        report.ended(len(sync.failures))
                        return ExitCode.FAILURE if sync.failures else ExitCode.OK
                    changed.wait(wait_s)
                    changed.clear()
            except KeyboardInterrupt:
                report.ended(len(sync.failures))
                raise
            finally:
                sync.save()


class _FolderSync:
    """One folder and the state of its files."""

    def __init__(
        self, client: Client, root: Path, collection: str, max_bytes: int, state_path: Path, as_json: bool
    ) -> None:
        self._client = client
        self._root = root
        self._collection = collection
        self._max_bytes = max_bytes
        self._state_path = state_path
        self._as_json = as_json
        self._synced = read_state(state_path)
        self._previous: Mapping[str, FileState] = {}
        self.scanned = self.done = False

    @property
    def failures(self) -> dict[str, str]:
        return {name: each.reason for name, each in sorted(self._synced.items()) if each.status is SyncStatus.FAILED}

    def save(self) -> None:
        write_state(self._state_path, self._synced)

    def print_failures(self) -> ExitCode:
        """Prints the files that failed, with the reasons."""
        failures = self.failures
        if self._as_json:
            uploaded = len(self._synced) - len(failures)
            emit({"taken": uploaded, "failed": [{"name": name, "reason": reason} for name, reason in failures.items()]})
            return ExitCode.OK
        for name, reason in failures.items():
            print_line(f"failed     {name}: {reason}")
        note(f"{len(self._synced)} files, {len(failures)} failed", "dim")
        return ExitCode.OK

    def run_once(self, settle_s: float, rescan_s: float) -> float:
        """Scans once and applies the changes; returns the time until the next scan, seconds."""
        self.scanned = self.done = False
        try:
            current = scan_folder(self._root, self._max_bytes)
            plan = plan_sync(current, self._previous, self._synced)
            self._previous = current
            self._apply(plan, current)
        except Exception as error:
            if not isinstance(error, ConfigurationError) and not is_client_error(error):
                raise
            note(f"edge-rag: {error}; trying again", "yellow")
            return min(_PAUSE_AFTER_ERROR_S, rescan_s)
        self.scanned = True
        self.done = not plan.unsettled
        return settle_s if plan.unsettled else rescan_s

    def _apply(self, plan: SyncPlan, current: Mapping[str, FileState]) -> None:
        steps: list[Callable[[], None]] = []
        steps += [lambda name=name: self._reject(name, current[name]) for name in plan.reject]  # type: ignore[misc]
        steps += [lambda name=name: self._upload(name, current[name]) for name in plan.upload]  # type: ignore[misc]
        steps += [lambda name=name: self._delete(name) for name in plan.delete]  # type: ignore[misc]
        try:
            for number, step in enumerate(steps, start=1):
                step()
                if number % _FILES_PER_SAVE == 0:
                    self.save()
        finally:
            if steps:
                self.save()

    def _upload(self, name: str, state: FileState) -> None:
        from edge_rag.client import ClientError

        owned = self._owns(name)
        try:
            path = self._root / name
            outcome = self._client.ingest(name, lambda: path.open("rb"), collection=self._collection)
        except FileNotFoundError:
            return  # deleted meanwhile; the next scan finds that
        except OSError as error:
            self._record(name, SyncedFile(state, SyncStatus.FAILED, f"cannot be read: {error.strerror}", owned))
            return
        except ClientError as error:
            if error.status.value not in _FAILURES_OF_ONE_FILE:
                raise
            self._record(name, SyncedFile(state, SyncStatus.FAILED, str(error), owned))
            return
        if outcome.status is IngestStatus.REJECTED:
            self._record(name, SyncedFile(state, SyncStatus.FAILED, outcome.reason, owned))
            return
        owned |= outcome.status is not IngestStatus.UNCHANGED
        self._record(name, SyncedFile(state, SyncStatus.UPLOADED, "", owned), outcome.status.value)

    def _reject(self, name: str, state: FileState) -> None:
        self._record(name, SyncedFile(state, SyncStatus.FAILED, state.problem, self._owns(name)))

    def _delete(self, name: str) -> None:
        from edge_rag.client import CallStatus, ClientError

        if self._owns(name):
            try:
                self._client.delete(name, collection=self._collection)
            except ClientError as error:
                if error.status is not CallStatus.NOT_FOUND:
                    raise
            self._print_event("removed", name, "")
        del self._synced[name]

    def _owns(self, name: str) -> bool:
        return name in self._synced and self._synced[name].owned

    def _record(self, name: str, entry: SyncedFile, event: str = "failed") -> None:
        self._synced[name] = entry
        self._print_event(event, name, entry.reason)

    def _print_event(self, event: str, name: str, reason: str) -> None:
        if self._as_json:
            emit({"event": event, "name": name, "reason": reason})
        else:
            print_line(f"{event:<9}  {name}{f': {reason}' if reason else ''}")


@contextmanager
def _changes(root: Path) -> Iterator[threading.Event]:
    """Yields an event that is set whenever the file system reports a change below a folder."""
    import watchfiles

    changed, stop = threading.Event(), threading.Event()

    def watch_files() -> None:
        while not stop.is_set():
            try:
                for _ in watchfiles.watch(
                    root, watch_filter=None, debounce=200, rust_timeout=500, stop_event=stop, raise_interrupt=False
                ):
                    changed.set()
            except (OSError, RuntimeError) as error:
                note(f"edge-rag: changes below {root} are found by rescans only: {error}", "yellow")
                stop.wait(_PAUSE_AFTER_ERROR_S)

    thread = threading.Thread(target=watch_files, name="watch", daemon=True)
    thread.start()
    try:
        yield changed
    finally:
        stop.set()
        thread.join()
