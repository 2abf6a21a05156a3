"""What `edge-rag watch` leaves for `edge-rag status` and `doctor` of the same user: is all well with a folder?"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from edge_rag.cli.files.folder_sync import watch_folder
from edge_rag.core.atomic_file import replace_file
from edge_rag.core.monitoring.status import Alert, AlertKind, AlertSeverity

_ENDING: Final = ".report"
_OVERDUE_SCANS: Final = 10
_LEAST_QUIET: Final = timedelta(minutes=15)  # an upload may take its time


class WatchReport:
    """The report on one folder. Its file's time is that of the latest scan that succeeded.

    Args:
        rescan_s: Time between scans, seconds.
    """

    def __init__(self, state_path: Path, folder: Path, collection: str, rescan_s: float) -> None:
        self._path = state_path.with_suffix(_ENDING)
        self._about = {"folder": str(folder), "collection": collection, "rescan_s": rescan_s}
        self._written = ""

    def scanned(self, failed: int) -> None:
        """Records a scan that succeeded.

        Args:
            failed: Files that failed and are not retried before they change.
        """
        self._write(failed, running=True)

    def ended(self, failed: int) -> None:
        """Records that the folder is not watched any more because somebody ended it."""
        self._write(failed, running=False)

    def _write(self, failed: int, running: bool) -> None:
        content = json.dumps({**self._about, "failed": failed, "running": running})
        with suppress(OSError):  # a failing disk is reported when the state file is written, which matters more
            if content == self._written:
                os.utime(self._path)  # a scan a minute must not wear a flash card out
                return
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self._path, content.encode(), mode=0o600)
            self._written = content


def watch_alerts(now: datetime | None = None) -> tuple[Alert, ...]:
    """Returns alerts of the folders that this user watches from this machine.

    Args:
        now: The time, UTC; None for the clock.
    """
    folder = watch_folder()
    if not folder.is_dir():
        return ()
    return tuple(
        alert
        for path in sorted(folder.glob(f"*{_ENDING}"))
        for alert in _alerts_of(path, datetime.now(UTC) if now is None else now)
    )


def _alerts_of(path: Path, now: datetime) -> Iterator[Alert]:
    try:
        report: dict[str, Any] = json.loads(path.read_bytes())
        scanned_at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        folder, collection, failed = str(report["folder"]), str(report["collection"]), int(report["failed"])
        most_quiet = max(_LEAST_QUIET, _OVERDUE_SCANS * timedelta(seconds=float(report["rescan_s"])))
        running = bool(report["running"])
    except (OSError, ValueError, KeyError, TypeError):
        return  # another version's, or half gone
    command = f"`edge-rag watch {folder} --collection {collection}"
    if failed:
        problem = f"{failed} files of {folder} could not be stored in {collection}"
        yield Alert(AlertKind.WATCH, AlertSeverity.WARNING, problem, f"{command} --status` lists them with the reasons")
    if running and now - scanned_at > most_quiet:
        problem = f"{folder} has not been compared with {collection} since {scanned_at:%Y-%m-%d %H:%M} UTC"
        yield Alert(AlertKind.WATCH, AlertSeverity.WARNING, problem, f"start {command}` again, or see what it prints")
