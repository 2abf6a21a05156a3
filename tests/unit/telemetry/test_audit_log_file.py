import json
import os
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from edge_rag.core.monitoring.event import AuditEntry, AuditEventKind
from edge_rag.core.shapes.encoder import encode
from edge_rag.errors import ConfigurationError
from edge_rag.telemetry.audit_log import MAX_QUEUED_LINES, AuditLog, AuditLogFile
from tests.unit.telemetry.audit_events import audit_event

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_an_event_without_request_and_an_infinite_number_are_valid_json() -> None:
    made = audit_event(AuditEventKind.THROTTLED, None, "tokens came too slowly", {"target_s": float("inf")})
    shown = json.loads(json.dumps(encode(AuditEntry(1, NOON, made)), allow_nan=False))
    assert (shown["request_id"], shown["priority"], shown["numbers"]) == (None, None, {"target_s": None})


def test_every_event_is_a_line_in_order_after_the_file_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "new" / "decisions.jsonl"
    file = AuditLogFile(path, 1 << 20, 1)
    trail = AuditLog(2, file.write)
    for _ in range(500):
        trail.record(audit_event())
    file.close()
    assert [line["number"] for line in lines(path)] == list(range(1, 501))
    assert file.dropped == 0


def test_a_file_that_is_there_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    for _ in range(2):
        file = AuditLogFile(path, 1 << 20, 1)
        AuditLog(1, file.write).record(audit_event())
        file.close()
    assert [line["number"] for line in lines(path)] == [1, 1]


def test_a_full_file_is_rotated_and_the_oldest_go(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    file = AuditLogFile(path, 4096, 2)
    trail = AuditLog(1, file.write)
    for _ in range(200):
        trail.record(audit_event())
    file.close()
    older = [path.with_name(f"{path.name}.{number}") for number in (2, 1)]
    assert sorted(tmp_path.iterdir()) == sorted([path, *older])
    assert all(each.stat().st_size <= 4096 for each in tmp_path.iterdir())
    kept = [line["number"] for each in (*older, path) for line in lines(each)]
    assert kept == list(range(kept[0], 201))
    assert kept[0] > 1


def test_recording_never_waits_for_a_blocked_disk(tmp_path: Path) -> None:
    pipe = tmp_path / "decisions.jsonl"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    file = AuditLogFile(pipe, 1 << 20, 1)
    trail = AuditLog(10, file.write)
    in_the_pipe = 1 << 16
    shortest = len(json.dumps(encode(AuditEntry(1, NOON, audit_event()))))
    recorded = MAX_QUEUED_LINES + in_the_pipe // shortest + 1000
    for _ in range(recorded):
        trail.record(audit_event())
    assert file.dropped > 0
    assert trail.entries().last == recorded

    os.set_blocking(reader, True)
    closing = threading.Thread(target=file.close)
    with capture_logs() as logged, os.fdopen(reader) as stream:
        closing.start()
        written = [json.loads(line)["number"] for line in stream]
        closing.join()
    assert len(written) + file.dropped == recorded
    assert written == sorted(written)
    assert {"event": "audit lines were lost", "lines": file.dropped, "log_level": "warning"} in logged


def test_lines_lost_to_a_broken_disk_are_counted_and_logged_once(tmp_path: Path) -> None:
    path = tmp_path / "gone" / "decisions.jsonl"
    with capture_logs() as logged:
        file = AuditLogFile(path, 4096, 1)
        path.unlink()
        path.parent.rmdir()
        trail = AuditLog(10, file.write)
        for _ in range(100):
            trail.record(audit_event())
        file.close()
    assert file.dropped > 0
    assert [entry["event"] for entry in logged] == ["an audit line could not be written", "audit lines were lost"]


def test_a_file_that_cannot_be_opened_is_named_with_its_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match=r"audit\.file: .*decisions\.jsonl"):
        AuditLogFile(tmp_path / "file" / "decisions.jsonl", 4096, 1)
