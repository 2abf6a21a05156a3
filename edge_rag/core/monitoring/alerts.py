"""Problems of the box, and what to do about them. Pure: facts in, alerts out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from edge_rag.core.monitoring.status import Alert, AlertKind, AlertSeverity, CertificateInUse, LibraryDamage

CERTIFICATE_DAYS: Final = 30
"""An alert is raised this many days before a certificate expires; it is critical once it has expired."""

LOW_DISK_BYTES: Final = 1 << 30
"""Free space of the data directory's disk below which it is an alert, bytes."""

FULL_DISK_BYTES: Final = 256 << 20
"""Free space below which it is critical, bytes."""

CLOCK_TOLERANCE: Final = timedelta(days=1)
"""How far a clock may be behind a time that has certainly passed: more than mistakes about time zones make."""


@dataclass(frozen=True, slots=True)
class BackupState:
    """Scheduled backups at one moment.

    Attributes:
        next_at: When the next one is due, UTC; None without a schedule.
        overdue_since: When one was due that has not been made, though there was time; None if all were made.
        failure: Why the latest attempt failed; empty if it did not.
    """

    next_at: datetime | None = None
    overdue_since: datetime | None = None
    failure: str = ""


@dataclass(frozen=True, slots=True)
class BoxFacts:
    """What alerts are made of.

    Attributes:
        now: The clock, UTC.
        passed: The latest time that is known to have passed, UTC, and how it is known; None for none.
        damage: The damage to the library; None if undamaged.
    """

    now: datetime
    passed: tuple[datetime, str] | None
    certificates: Sequence[CertificateInUse]
    directory: Path
    free_bytes: int
    backup: BackupState = BackupState()
    damage: LibraryDamage | None = None


def find_alerts(box: BoxFacts) -> tuple[Alert, ...]:
    """Returns the alerts, the critical first."""
    found = [
        *_of_library(box.damage),
        *_of_disk(box.directory, box.free_bytes),
        *_of_certificates(box.certificates, box.now),
        *_of_clock(box.now, box.passed),
        *_of_backup(box.backup),
    ]
    return tuple(sorted(found, key=lambda alert: alert.severity is not AlertSeverity.CRITICAL))


def _of_library(damage: LibraryDamage | None) -> Iterator[Alert]:
    if damage is not None:
        action = "stop the daemon and run `edge-rag doctor --repair`"
        yield Alert(AlertKind.LIBRARY, AlertSeverity.CRITICAL, damage.problem, action)


def _of_disk(directory: Path, free_bytes: int) -> Iterator[Alert]:
    if free_bytes < LOW_DISK_BYTES:
        severity = AlertSeverity.CRITICAL if free_bytes < FULL_DISK_BYTES else AlertSeverity.WARNING
        problem = f"{free_bytes >> 20} MiB are free on the disk of {directory}; documents are refused when it is full"
        yield Alert(AlertKind.DISK, severity, problem, "free some space, lower backup.keep, or use a larger disk")


def _of_certificates(certificates: Sequence[CertificateInUse], now: datetime) -> Iterator[Alert]:
    for each in certificates:
        if each.expires_at is None:
            problem, severity = f"the certificate {each.file} cannot be read", AlertSeverity.CRITICAL
        elif each.expires_at <= now:
            problem = f"the certificate of {each.subject} ({each.file}) expired on {each.expires_at:%Y-%m-%d}"
            severity = AlertSeverity.CRITICAL
        elif (days := (each.expires_at - now).days) < CERTIFICATE_DAYS:
            problem = f"the certificate of {each.subject} ({each.file}) expires in {days} days"
            severity = AlertSeverity.WARNING
        else:
            continue
        action = "make a new one with `edge-rag tls init`, or put a new file there and reload the daemon"
        yield Alert(AlertKind.CERTIFICATE, severity, problem, action)


def _of_clock(now: datetime, passed: tuple[datetime, str] | None) -> Iterator[Alert]:
    if passed is not None and now < passed[0] - CLOCK_TOLERANCE:
        problem = f"the clock shows {now:%Y-%m-%d %H:%M} UTC, but {passed[1]} on {passed[0]:%Y-%m-%d %H:%M} UTC"
        action = "set the clock (timedatectl), and see whether its battery is empty; certificates and schedules need it"
        yield Alert(AlertKind.CLOCK, AlertSeverity.CRITICAL, problem, action)


def _of_backup(state: BackupState) -> Iterator[Alert]:
    if state.failure:
        action = "do what the message says; it is tried again every hour, and `edge-rag backup FILE` makes one now"
        problem = f"the scheduled backup failed: {state.failure}"
    elif state.overdue_since is not None:
        action = "see the daemon's log; `edge-rag backup FILE` makes one now"
        problem = f"no scheduled backup has been made since {state.overdue_since:%Y-%m-%d %H:%M} UTC, when one was due"
    else:
        return
    yield Alert(AlertKind.BACKUP, AlertSeverity.WARNING, problem, action)
