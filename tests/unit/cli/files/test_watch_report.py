import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from edge_rag.cli.files.folder_sync import state_file
from edge_rag.cli.files.watch_report import WatchReport, watch_alerts
from edge_rag.core.monitoring.status import AlertKind

MANUALS = Path("/srv/manuals")


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WatchReport:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return WatchReport(state_file(MANUALS, "pumps", "127.0.0.1:7421"), MANUALS, "pumps", 60)


def in_an_hour() -> datetime:
    return datetime.now(UTC) + timedelta(hours=1)


def test_a_folder_that_is_watched_well_is_no_alert(report: WatchReport) -> None:
    assert watch_alerts() == ()
    report.scanned(0)
    assert watch_alerts() == ()


def test_files_that_failed_are_an_alert_until_they_are_stored(report: WatchReport) -> None:
    report.scanned(2)
    (alert,) = watch_alerts()
    assert (alert.kind, alert.problem) == (AlertKind.WATCH, "2 files of /srv/manuals could not be stored in pumps")
    assert "`edge-rag watch /srv/manuals --collection pumps --status`" in alert.action
    report.scanned(0)
    assert watch_alerts() == ()


def test_a_watch_that_is_gone_is_an_alert_and_one_that_was_ended_is_not(report: WatchReport) -> None:
    report.scanned(0)
    (alert,) = watch_alerts(in_an_hour())
    assert "/srv/manuals has not been compared with pumps since" in alert.problem
    report.ended(0)
    assert watch_alerts(in_an_hour()) == ()


def test_a_scan_without_news_does_not_write_the_file_again(report: WatchReport) -> None:
    report.scanned(0)
    (path,) = state_file(MANUALS, "pumps", "127.0.0.1:7421").parent.glob("*.report")
    os.utime(path, (1, 1))
    inode = path.stat().st_ino
    report.scanned(0)
    assert path.stat().st_ino == inode
    assert path.stat().st_mtime > 1


def test_a_report_that_cannot_be_read_is_left_out(report: WatchReport) -> None:
    report.scanned(1)
    (path,) = state_file(MANUALS, "pumps", "127.0.0.1:7421").parent.glob("*.report")
    path.write_text("{")
    assert watch_alerts() == ()
