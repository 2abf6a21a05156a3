"""What is wrong on the box, and when backups are due."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from edge_rag.core.monitoring.alerts import BackupState, BoxFacts, find_alerts
from edge_rag.core.monitoring.schedule import Schedule
from edge_rag.core.monitoring.status import AlertKind, AlertSeverity, CertificateInUse, LibraryDamage

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")
WARNING, CRITICAL = AlertSeverity.WARNING, AlertSeverity.CRITICAL


def box(**facts: object) -> BoxFacts:
    plain: dict[str, object] = {"now": NOW, "passed": None, "certificates": (), "directory": Path("/data")}
    return BoxFacts(**{**plain, "free_bytes": 9 << 30, **facts})  # type: ignore[arg-type]


def kinds(facts: BoxFacts) -> list[tuple[object, object]]:
    assert all(alert.problem and alert.action for alert in find_alerts(facts))
    return [(alert.kind, alert.severity) for alert in find_alerts(facts)]


def certificate(expires_at: datetime | None) -> CertificateInUse:
    return CertificateInUse(Path("/tls/server.pem"), "pump house", expires_at)


def test_a_box_that_is_well_has_no_alerts() -> None:
    facts = box(passed=(NOW, "now"), certificates=(certificate(NOW + timedelta(days=31)),), backup=BackupState(NOW))
    assert find_alerts(facts) == ()


def test_the_critical_alerts_come_first() -> None:
    damage = LibraryDamage("pages are damaged", 1, 0, 1, ())
    facts = box(free_bytes=900 << 20, certificates=(certificate(NOW),), damage=damage)
    assert kinds(facts) == [
        (AlertKind.LIBRARY, CRITICAL),
        (AlertKind.CERTIFICATE, CRITICAL),
        (AlertKind.DISK, WARNING),
    ]


@pytest.mark.parametrize(
    ("expires_at", "severity"),
    [(NOW + timedelta(days=29), WARNING), (NOW, CRITICAL), (None, CRITICAL)],
)
def test_a_certificate_that_ends_is_told_of_with_its_file(expires_at: datetime | None, severity: AlertSeverity) -> None:
    (alert,) = find_alerts(box(certificates=(certificate(expires_at),)))
    assert (alert.kind, alert.severity) == (AlertKind.CERTIFICATE, severity)
    assert "/tls/server.pem" in alert.problem
    assert "edge-rag tls init" in alert.action


def test_a_nearly_full_disk_is_critical() -> None:
    assert kinds(box(free_bytes=255 << 20)) == [(AlertKind.DISK, CRITICAL)]


def test_a_clock_that_lies_before_what_has_happened_is_wrong_and_a_time_zone_is_not() -> None:
    assert kinds(box(passed=(NOW + timedelta(hours=23), "the newest document was stored"))) == []
    (alert,) = find_alerts(box(passed=(NOW + timedelta(days=400), "the newest document was stored")))
    assert alert.kind is AlertKind.CLOCK
    assert "2026-11-23 12:00 UTC, but the newest document was stored on 2027-12-28" in alert.problem


def test_a_backup_that_failed_is_told_of_with_its_reason_and_before_that_it_is_overdue() -> None:
    assert kinds(box(backup=BackupState(NOW, NOW - timedelta(days=2)))) == [(AlertKind.BACKUP, WARNING)]
    (alert,) = find_alerts(box(backup=BackupState(NOW, NOW - timedelta(days=2), "the disk is full")))
    assert "the disk is full" in alert.problem


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("02:30", "2026-11-24 01:30"),
        ("14:00", "2026-11-23 13:00"),
        ("13:00", "2026-11-24 12:00"),  # now is not after now
        ("mon 12:59", "2026-11-30 11:59"),
        ("sun 02:30", "2026-11-29 01:30"),
        ("12h", "2026-11-24 00:00"),
        ("7d", "2026-11-30 12:00"),
    ],
)
def test_the_next_time_of_a_schedule_is_in_the_local_time_zone(text: str, expected: str) -> None:
    assert f"{Schedule.parse(text).next_after(NOW, BERLIN):%Y-%m-%d %H:%M}" == expected


def test_a_day_whose_hour_is_skipped_has_its_time_too() -> None:
    before = datetime(2027, 3, 27, 12, tzinfo=UTC)  # clocks go forward at 02:00 on the 28th
    schedule = Schedule.parse("02:30")
    first = schedule.next_after(before, BERLIN)
    second = schedule.next_after(first, BERLIN)
    assert (f"{first:%d %H:%M}", f"{second:%d %H:%M}") == ("28 01:30", "29 00:30")


@pytest.mark.parametrize("text", ["", "2:30", "24:00", "12:60", "sunday 02:30", "sun", "0h", "5m", "1000d", "daily"])
def test_other_forms_of_a_schedule_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="sun 02:30"):
        Schedule.parse(text)
