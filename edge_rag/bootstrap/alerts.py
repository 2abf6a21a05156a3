"""The alerts of the box: of its certificates, disk, backups, documents and clock."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import edge_rag
from edge_rag.bootstrap.network import certificates
from edge_rag.config.settings import Settings
from edge_rag.core.monitoring.alerts import BackupState, BoxFacts, find_alerts
from edge_rag.core.monitoring.schedule import Schedule
from edge_rag.core.monitoring.status import Alert, LibraryDamage
from edge_rag.storage.backup import DATABASE, newest_record
from edge_rag.storage.recovery.scheduled_backups import overdue_since
from edge_rag.storage.recovery.stored_backups import BACKUPS, stored_backups


@dataclass(frozen=True, slots=True)
class BoxAlerts:
    """The alerts of a box. May be used from any thread.

    Attributes:
        passed: The latest time that is known to have passed at the start, UTC, and how it is known.
        damage: The damage to the library; None if undamaged.
        clock: Wall clock, UTC.
    """

    settings: Settings
    passed: tuple[datetime, str]
    backup: Callable[[], BackupState]
    damage: LibraryDamage | None
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)

    def free_bytes(self) -> int:
        directory = self.settings.data_directory
        existing = next(path for path in (directory, *directory.parents) if path.exists())
        return shutil.disk_usage(existing).free

    def read(self) -> tuple[Alert, ...]:
        """Returns the present alerts, the critical first."""
        return find_alerts(
            BoxFacts(
                now=self.clock(),
                passed=self.passed,
                certificates=certificates(self.settings),
                directory=self.settings.data_directory,
                free_bytes=self.free_bytes(),
                backup=self.backup(),
                damage=self.damage,
            )
        )


def alerts_without_daemon(settings: Settings) -> tuple[Alert, ...]:
    """Returns the alerts of a box whose daemon does not run."""
    kept = stored_backups(settings.data_directory / BACKUPS)
    overdue = None
    if settings.backup.schedule is not None and kept:
        overdue = overdue_since(Schedule.parse(settings.backup.schedule), kept[0].created_at, datetime.now(UTC))
    state = BackupState(overdue_since=overdue)
    return BoxAlerts(settings, passed_time(settings.data_directory), lambda: state, None).read()


def passed_time(data_directory: Path) -> tuple[datetime, str]:
    """Returns the latest time that must have passed, UTC, and how it is known. A box needs no network for it.

    It is the time of the newest document or of the newest backup on the box, or when edge-rag was installed.
    """
    installed = datetime.fromtimestamp(Path(edge_rag.__file__).stat().st_mtime, UTC)
    known = [(installed, "edge-rag was installed")]
    if (newest := newest_record(data_directory / DATABASE)) is not None:
        known.append((newest, "the newest document was stored"))
    if kept := stored_backups(data_directory / BACKUPS):
        known.append((kept[0].created_at, "the newest backup was made"))
    return max(known)
