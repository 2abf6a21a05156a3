import json
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

from edge_rag.client import AskOptions, Client
from edge_rag.core.documents.collection import CollectionSettings
from edge_rag.core.monitoring.event import AuditEntry, AuditEventKind
from edge_rag.core.monitoring.resources import ThrottleCause
from edge_rag.core.placement import OffloadRule
from edge_rag.core.query import AnswerMode
from tests.e2e.support.running_daemon import RunningDaemon, ingest
from tests.unit.throttle.boards import JETSON_ORIN_NANO, JETSON_ORIN_NANO_POWER, write_tree, zone

VALVE = {"valve.md": b"# Valve\n\nThe relief valve opens at 6 bar. It is tested every spring.\n"}


def test_a_hot_board_throttles_the_daemon_and_a_cool_one_lets_it_go(
    start: Callable[..., RunningDaemon], tmp_path: Path, free_port: int
) -> None:
    root = write_tree(tmp_path / "board", {**JETSON_ORIN_NANO, **JETSON_ORIN_NANO_POWER})
    running = start(
        config=f"[throttle]\nroot = {json.dumps(str(root))}\ninterval_seconds = 0.05\n"
        f"celsius = 80\nresume_celsius = 70\n[generator]\nmax_slots = 8\n[metrics]\nport = {free_port}\n"
        '[offload]\nmode = "overflow"\n[[offload.remotes]]\nname = "gone"\naddress = "127.0.0.1:1"\n'
    )
    ingest(running.address, VALVE)
    with Client(running.address) as client:
        client.update_collection("default", CollectionSettings(offload=OffloadRule.ALLOWED), {"offload"})
        reports = client.watch_status(0.1)
        report = next(reports)
        assert (report.throttling.share, report.engine.slots) == (1.0, 8)
        assert report.throttling.watts is not None
        assert report.throttling.joules is not None

        write_tree(root, zone(9, "tj-thermal", 92_000, passive=99_000, critical=104_500))
        while report.engine.slots > 1:
            report = next(reports)
        assert report.throttling.causes == (ThrottleCause.HEAT,)
        assert 0 < report.throttling.share < 0.25
        metrics = urlopen(f"http://127.0.0.1:{free_port}/metrics").read().decode()
        assert 'edge_rag_throttled{cause="heat"} 1.0' in metrics
        assert 'edge_rag_temperature_celsius{zone="tj-thermal"} 92.0' in metrics
        assert list(
            client.ask(
                "When does the relief valve open?", AskOptions(request_id="hot", mode=AnswerMode.FREE, max_tokens=8)
            )
        )
        placed = next(
            entry.event.reason
            for entry in client.audit_events(request_id="hot")
            if isinstance(entry, AuditEntry) and entry.event.kind is AuditEventKind.PLACED
        )
        assert placed == "generating on a remote: this box is throttled"

        write_tree(root, zone(9, "tj-thermal", 55_000, passive=99_000, critical=104_500))
        while report.engine.slots < 8:
            report = next(reports)
        assert (report.throttling.share, report.throttling.causes) == (1.0, ())
        moves = [
            entry.event
            for entry in client.audit_events()
            if isinstance(entry, AuditEntry) and entry.event.kind is AuditEventKind.THROTTLED
        ]
    shares = [move.numbers["share"] for move in moves]
    lowest = shares.index(min(shares))
    assert shares[: lowest + 1] == sorted(shares[: lowest + 1], reverse=True)
    assert shares[lowest:] == sorted(shares[lowest:])
    assert shares[-1] == 1.0
    assert {move.reason for move in moves} == {"the board is too hot", "the board has cooled down"}
    assert moves[0].numbers["celsius"] == 92
    assert moves[0].numbers["limit_celsius"] == 80
    assert "the board is too hot" in running.log.read_text()
