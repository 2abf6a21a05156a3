import io
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from edge_rag.api.v1 import admin_pb2
from edge_rag.cli.main import main
from edge_rag.cli.output.status_dashboard import PageState, StatusView, page_states
from edge_rag.cli.output.status_text import remote_line, status_lines
from edge_rag.core.ids import RequestId
from edge_rag.core.monitoring.metrics import Latency, LatencyMetric
from edge_rag.core.monitoring.resources import (
    MemoryItem,
    MemoryPlanReport,
    MemoryPressureState,
    ShedTarget,
    Temperature,
    ThrottleCause,
    Throttling,
)
from edge_rag.core.monitoring.status import (
    BackupWay,
    CertificateInUse,
    CompletedBackup,
    DaemonState,
    DaemonStatus,
    DeviceUse,
    EngineStats,
    IndexInUse,
    IndexKind,
    ModelInUse,
    PageMap,
    RemoteInUse,
    SlotUse,
    StageSnapshot,
)
from edge_rag.core.placement import ModelStage, Placement, Precision, Provider
from edge_rag.core.query import Priority
from edge_rag.core.shapes.encoder import encode
from edge_rag.wire import status as status_messages
from tests.support.terminal import CTRL_C, edge_rag_at_a_terminal
from tests.unit.cli.scripted_daemon import ScriptedDaemon, refusing

CPU = Provider.CPU
SLOT = SlotUse(RequestId("38547deffce7"), "ipv4:10.0.0.7", Priority.BATCH, 1.41, 526, 480, 557, 31, 300, 18, 2)
REPORT = DaemonStatus(
    version="0.1.0",
    state=DaemonState.SERVING,
    started_at=datetime(2026, 11, 21, tzinfo=UTC),
    data_directory=Path("/var/lib/edge-rag"),
    profile="cpu-arm64",
    models=(
        ModelInUse("quoter", "paged, int8 kv", Placement(ModelStage.GENERATOR, CPU, CPU, "the rule", Precision.MODEL)),
    ),
    stages=(
        StageSnapshot("retriever", 3, 256, 2, 1204, 0, 0.61),
        StageSnapshot("reranker", 0, 256, 0, 1201, 0, 0.002),
        StageSnapshot("generator", 200, 256, 6, 1190, 7, 0.99),
        StageSnapshot("ingest", 0, 64, 0, 12, 0, 0.0),
    ),
    engine=EngineStats(
        slots_busy=6,
        slots=8,
        pages_used=60,
        pages=1024,
        page_tokens=32,
        kv_bytes=53_477_376,
        steps=2008,
        generated_tokens=15_665,
        prefill_tokens=20_484,
        preemptions=2,
        pages_cached=700,
        generated_per_s=42.5,
        computed_per_s=118.25,
        sequences=(replace(SLOT, computed_tokens=100, generated_tokens=0),) + (SLOT,) * 5,
        page_map=PageMap(2, (2,) * 20 + (0,) * 492, (1,) * 20 + (0,) * 492, (0,) * 20 + (2,) * 350 + (0,) * 142),
    ),
    collections={"default": 12},
    indexes=(),
    resident_bytes=300 << 20,
    address="127.0.0.1:7421",
    latencies=tuple(Latency(measure, 448, 0.0164, 0.0461, 12.5) for measure in LatencyMetric),
    devices=(DeviceUse("cpu", 0.61, ("retriever", "reranker")), DeviceUse("gpu", 0.99, ("generator",))),
    temperatures=(Temperature("cpu-thermal", 61.25), Temperature("gpu-thermal", 88.0)),
    remotes=(RemoteInUse("office", "edge-rag", "10.0.0.9:7421", "open", 1, 20, 3, 4096, "it said nothing", 1.5),),
    memory=MemoryPlanReport(512 << 20, (MemoryItem("process", 176 << 20), MemoryItem("KV pages", 51 << 20)), 1),
    pressure=MemoryPressureState(5 << 30, 0.125, (ShedTarget.PREFIX_CACHE, ShedTarget.BATCH)),
    throttling=Throttling(0.5625, (ThrottleCause.HEAT,), ("throttled",), 12.25, 0.29, 1234.5),
    certificates=(
        CertificateInUse(Path("/etc/server.pem"), "pump house", datetime(2026, 12, 1, tzinfo=UTC)),
        CertificateInUse(Path("/etc/ca.pem"), "edge-rag", datetime(2026, 11, 1, tzinfo=UTC)),
        CertificateInUse(Path("/etc/lost.pem"), "", None),
    ),
    last_backup=CompletedBackup(datetime(2026, 11, 18, 9, tzinfo=UTC), 5 << 20, BackupWay.STORED),
)


def drawn(view: StatusView, width: int, height: int = 50) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None, force_terminal=True)
    console.print(view, end="")
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 80, 92, 112, 200])
def test_the_view_fits_the_width_and_loses_nothing_that_moves(width: int) -> None:
    lines = drawn(StatusView(REPORT), width)
    assert all(cell_len(line) <= width for line in lines)
    text = "\n".join(lines)
    for fact in (
        "serving",
        "retriever",
        "ingest",
        "42.5/s generated",
        "6 of 8 in use",
        "cached",
        "61 °C",
        "88 °C",
        "99%",
        "throttled to 56% by heat",
    ):
        assert fact in text
    if width >= 80:
        for fact in ("31/300", "batch", "1.41 s", "526", "700 cached", "12.50 s", "first token"):
            assert fact in text
        assert "…" not in re.sub(r"pages .*", "", text)


def test_the_age_of_the_last_backup_and_the_days_left_of_certificates_are_told() -> None:
    lines = status_lines(REPORT, REPORT.started_at)
    assert lines[-4:] == [
        "backup       2026-11-18 09:00, 2 days ago, 5.0 MiB, on the box",
        "certificate  pump house until 2026-12-01, 10 days left (/etc/server.pem)",
        "certificate  edge-rag until 2026-11-01, expired (/etc/ca.pem)",
        "certificate  /etc/lost.pem cannot be read",
    ]
    never = status_lines(replace(REPORT, last_backup=None), REPORT.started_at)
    assert "backup       none yet; make one with `edge-rag backup`" in never


def test_a_status_is_told_in_lines_of_models_stages_memory_and_indexes() -> None:
    built = datetime(2026, 5, 1, 12, 30, tzinfo=UTC)
    report = replace(
        REPORT,
        models=(
            ModelInUse("quoter", "", Placement(ModelStage.GENERATOR, Provider.CUDA, CPU, "no driver", Precision.MODEL)),
        ),
        indexes=(
            IndexInUse("default", IndexKind.EXACT, 40),
            IndexInUse("large", IndexKind.SEGMENT, 90_000, 12, 33 << 20, 0.981, built, 20.0, True),
        ),
    )
    lines = status_lines(report, REPORT.started_at)
    assert {
        "generator    quoter, ; on cpu instead of cuda: no driver",
        "retriever    2 running, 3 of 256 waiting, 1204 done, 0 refused, busy 61%",
        "kv cache     60 of 1024 pages of 32 tokens held, 700 cached, 51.0 MiB",
        "memory       227 of 512 MiB planned, reduced 1 times to fit: process 176, KV pages 51",
        "collections  default (12)",
        "index        default: exact, 40 vectors",
        "index        large: ivf-sq8, 90000 vectors, 12 unindexed, 33.0 MiB, recall@10 0.981, built 2026-05-01 12:30"
        " in 20.00 s, rebuilding",
    } <= set(lines)


def test_slots_that_do_not_fit_are_counted() -> None:
    crowded = replace(REPORT, engine=replace(REPORT.engine, sequences=(SLOT,) * 30, slots_busy=30, slots=32))
    assert "and 22 more" in "\n".join(drawn(StatusView(crowded), 80, height=24))
    assert "more" not in "\n".join(drawn(StatusView(crowded), 80, height=70))


def test_states_of_pages_are_told_by_characters_and_use_is_never_hidden_by_free_pages() -> None:
    lines = drawn(StatusView(REPORT), 80)
    (start,) = (number for number, line in enumerate(lines) if line.startswith(" pages"))
    marks = "".join(line.strip() for line in lines[start + 1 : start + 5])
    assert set(marks) == {state.mark for state in PageState} - {PageState.SHARED.mark}
    one_of_many = PageMap(1, (1,) + (0,) * 99, (0,) * 100, (0,) * 100)
    assert page_states(one_of_many, 10) == [PageState.HELD] + [PageState.FREE] * 9


@given(st.integers(1, 600), st.integers(1, 300))
def test_a_picture_has_at_most_the_characters_there_is_room_for(cells: int, room: int) -> None:
    assert 1 <= len(page_states(PageMap(3, (1,) * cells, (0,) * cells, (0,) * cells), room)) <= room


def test_what_a_client_calls_itself_cannot_steer_the_terminal() -> None:
    hostile = replace(SLOT, request_id=RequestId("\x1b[2Jevil"), client="\x1b]0;title\x07")
    report = replace(
        REPORT,
        engine=replace(REPORT.engine, sequences=(hostile,)),
        temperatures=(Temperature("\x1b[31m", 1.0),),
        devices=(DeviceUse("\x1b[5m", 0.1, ()),),
    )
    text = "\n".join(drawn(StatusView(report), 120))
    assert "\x1b]0" not in text
    assert "\x1b[2J" not in text
    assert "\x1b[31m" not in text
    assert "\x1b[5m" not in text


def sending(*reports: DaemonStatus, hold: threading.Event | None = None) -> Any:
    def handler(request: Any, context: grpc.ServicerContext) -> Iterator[admin_pb2.WatchStatusResponse]:
        for report in reports:
            yield admin_pb2.WatchStatusResponse(status=status_messages.status_to_message(report))
        if hold is not None:
            context.add_callback(hold.set)
            hold.wait(60)

    return handler


def test_a_report_survives_the_wire(scripted: ScriptedDaemon) -> None:
    scripted.script("WatchStatus", sending(REPORT, replace(REPORT, state=DaemonState.DRAINING)))
    result = scripted.run("status", "--watch", "--json")
    assert result.exit_code == 0
    first, last = (json.loads(line) for line in result.stdout.splitlines())
    assert (first["state"], last["state"]) == ("serving", "draining")
    assert first == encode(REPORT)
    assert first["engine"]["sequences"][1]["priority"] == "batch"
    assert first["temperatures"] == {"cpu-thermal": 61.25, "gpu-thermal": 88.0}


def test_what_only_a_newer_daemon_knows_does_not_hide_the_rest(scripted: ScriptedDaemon) -> None:
    later: Any = 4000
    report = status_messages.status_to_message(REPORT)
    report.MergeFrom(admin_pb2.GetStatusResponse(state=later))
    report.models[0].placement.MergeFrom(admin_pb2.Placement(used=later, wanted=later, precision=later))
    scripted.script("GetStatus", lambda request, context: report)
    shown = scripted.run("status")
    assert shown.exit_code == 0, shown.output
    assert ": unrecognized_4000, up " in shown.stdout
    assert "generator    quoter, paged, int8 kv; on unrecognized_4000 in unrecognized_4000" in shown.stdout.splitlines()
    assert len(shown.stdout.splitlines()) == len(status_lines(REPORT, REPORT.started_at))
    view = StatusView(status_messages.status_from_message(report))
    assert any("unrecognized_4000" in line for line in drawn(view, 120))


def test_where_there_is_no_terminal_every_report_is_a_line(scripted: ScriptedDaemon) -> None:
    scripted.script("WatchStatus", sending(REPORT, REPORT))
    result = scripted.run("status", "--watch")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert len(lines) == 2
    assert "\x1b" not in result.stdout
    assert re.match(r"\d\d:\d\d:\d\d serving: retriever 2\+3, .* slots 6/8, pages 60/1024 \(700 cached\)", lines[0])


def test_an_interval_without_watch_and_one_out_of_range_are_refused(runner: CliRunner) -> None:
    for arguments in (["--interval", "2"], ["--watch", "--interval", "0"]):
        result = runner.invoke(main, ["status", *arguments])
        assert (result.exit_code, "--interval" in result.stderr) == (2, True)


def test_in_a_terminal_the_view_outlives_the_daemon_and_ctrl_c_restores_the_screen(scripted: ScriptedDaemon) -> None:
    watched = threading.Event()
    refused = refusing(grpc.StatusCode.UNAVAILABLE, "starting")
    scripted.script("WatchStatus", sending(REPORT), refused, sending(replace(REPORT, version="0.2.0"), hold=watched))
    command = ("status", "--watch", "--interval", "0.1", "--server", scripted.address)
    with edge_rag_at_a_terminal(*command, environment={"COLUMNS": "120", "LINES": "45"}) as terminal:
        terminal.wait_for("\x1b[?1049h")
        seen = terminal.wait_for("0.2.0")
        assert "retriever" in seen
        assert "not reachable, trying again" in seen or "shut down, waiting for it" in seen
        terminal.press(CTRL_C)
        terminal.wait_for("\x1b[?25h")
        terminal.wait_for("\x1b[?1049l")
        assert terminal.ended() == 130
    assert watched.wait(30)


REMOTE = RemoteInUse("office", "edge-rag", "10.0.0.9:7421", "closed", 2, 40, 0, 3 << 20, "", 1.5)


def test_the_line_of_a_remote_in_use_counts_its_answers() -> None:
    line = "office, edge-rag at 10.0.0.9:7421: in use, 2 in flight, 40 done, 0 failed, 1.50 s per answer, 3.0 MiB sent"
    assert remote_line(REMOTE) == line


def test_the_line_of_a_paused_remote_names_its_last_error() -> None:
    line = remote_line(replace(REMOTE, breaker="open", failures=3, last_problem="the stream timed out", answer_s=None))
    assert "paused after failures" in line
    assert line.endswith("3.0 MiB sent; last error: the stream timed out")
