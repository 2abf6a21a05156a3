import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from edge_rag.client import AskOptions, Client
from edge_rag.core.monitoring.status import AlertKind, AlertSeverity, DaemonState
from edge_rag.core.query import AnswerMode, Priority
from tests.e2e.support.running_daemon import RunningDaemon, ingest, sample_documents
from tests.unit.throttle.boards import RASPBERRY_PI_5, write_tree

QUESTION = "How often must the pump bearings be greased?"


def test_a_daemon_at_work_is_seen_at_work_and_its_watch_ends_with_it(
    start: Callable[..., RunningDaemon], tmp_path: Path
) -> None:
    root = write_tree(tmp_path / "board", RASPBERRY_PI_5)
    running = start(config=f"[throttle]\nroot = {json.dumps(str(root))}\n[generator]\nmax_slots = 2\n")
    ingest(running.address, sample_documents())
    over = threading.Event()

    def ask() -> None:
        options = AskOptions(mode=AnswerMode.FREE, priority=Priority.BATCH, max_tokens=200)
        with Client(running.address) as client:
            while not over.is_set():
                for _ in client.ask(QUESTION, options):
                    pass

    asking = [threading.Thread(target=ask) for _ in range(3)]
    for thread in asking:
        thread.start()
    with Client(running.address) as client:
        reports = client.watch_status(0.1)
        for report in reports:
            engine = report.engine
            shares = {device.name: device for device in report.devices}
            if len(engine.sequences) == 2 and shares and shares["cpu"].busy > 0.1 and engine.generated_per_s > 0:
                break
        over.set()
        for thread in asking:
            thread.join(60)
        assert {slot.priority for slot in engine.sequences} == {Priority.BATCH}
        assert all(slot.client.startswith("ipv4:127.0.0.1") for slot in engine.sequences)
        assert all(0 < slot.pages <= engine.pages_used for slot in engine.sequences)
        held = sum(engine.page_map.held) + sum(engine.page_map.shared)
        assert 0 < held <= sum(slot.pages for slot in engine.sequences)
        assert set(shares["cpu"].stages) == {"ingest", "retriever", "reranker", "generator"}
        assert any(stage.busy > 0 for stage in report.stages if stage.name == "generator")
        assert [(each.zone, each.celsius) for each in report.temperatures] == [("cpu-thermal", 54.8)]
        running.process.send_signal(signal.SIGTERM)
        *_, last = reports
    assert last.state is DaemonState.DRAINING
    assert running.process.wait(30) == 0


def test_what_is_wrong_on_the_box_is_told_by_the_daemon_and_by_doctor(
    start: Callable[..., RunningDaemon], tmp_path: Path
) -> None:
    backups = tmp_path / "data" / "backups"
    backups.mkdir(mode=0o700, parents=True)
    backups.parent.chmod(0o700)
    (backups / "20991231T120000Z.edge-rag").write_bytes(b"made by a clock that was right")
    running = start(config='[backup]\nschedule = "02:30"\n')

    with Client(running.address) as client:
        report = client.status()

    (alert,) = [each for each in report.alerts if each.kind is AlertKind.CLOCK]
    assert alert.severity is AlertSeverity.CRITICAL
    assert "the newest backup was made on 2099-12-31 12:00 UTC" in alert.problem
    assert report.next_backup is not None
    assert (report.next_backup - report.started_at).total_seconds() < 25 * 3600  # the wrong time does not stop them
    command = [sys.executable, "-m", "edge_rag.cli.main", "doctor", "--json", "--data-dir", str(tmp_path / "data")]
    for state in ("running", "stopped"):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        checks = {each["name"]: each for each in json.loads(done.stdout)["checks"]}
        assert (checks["clock"]["verdict"], checks["clock"]["advice"]) == ("fail", alert.action), state
        if running.process.poll() is None:
            assert running.stop() == 0
