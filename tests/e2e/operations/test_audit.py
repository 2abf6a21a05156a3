"""Someone whose answer was slow can be shown why: the trail of a real daemon, by API and command line."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from click.testing import CliRunner, Result

from edge_rag.cli.main import main
from edge_rag.client import AskOptions, CallStatus, Client, ClientError
from edge_rag.core.answer import Finished
from edge_rag.core.monitoring.event import AuditEntry, AuditEventKind
from edge_rag.core.monitoring.metrics import LatencyMetric
from edge_rag.core.query import AnswerMode
from tests.e2e.support.running_daemon import ROOT, RunningDaemon, ingest

QUESTION = "How often must the pump bearings be greased?"
ANSWERED = [
    AuditEventKind.STAGE_DONE,
    AuditEventKind.STAGE_DONE,
    AuditEventKind.QUEUED,
    AuditEventKind.ADMITTED,
    AuditEventKind.FINISHED,
]
VALVE = {"valve.md": b"# Valve\n\nThe relief valve opens at 6 bar. It is tested every spring.\n"}


def edge_rag(daemon: RunningDaemon, *arguments: str) -> Result:
    return CliRunner(env={"EDGE_RAG_SERVER": daemon.address}).invoke(main, arguments)


def ask(address: str, request_id: str, question: str = QUESTION, **options: Any) -> Finished:
    short: dict[str, Any] = {"mode": AnswerMode.FREE, "max_tokens": 24}
    with Client(address) as client:
        *_, last = client.ask(question, AskOptions(request_id=request_id, **(short | options)))
    assert isinstance(last, Finished)
    return last


def trail(address: str, request_id: str = "", **options: Any) -> list[AuditEntry]:
    with Client(address) as client:
        return [entry for entry in client.audit_events(request_id, **options) if isinstance(entry, AuditEntry)]


@pytest.mark.smoke
def test_a_questions_decisions_are_listed_in_order_with_reasons_and_numbers(daemon: RunningDaemon) -> None:
    finished = ask(daemon.address, "slow-1")
    entries = trail(daemon.address, "slow-1")
    kinds = [entry.event.kind for entry in entries]
    assert kinds == ANSWERED
    assert [entry.number for entry in entries] == sorted(entry.number for entry in entries)
    times = [entry.event.at_s for entry in entries]
    assert times == sorted(times)
    for entry in entries:
        assert entry.event.request_id == "slow-1"
        assert entry.event.client.startswith("ipv4:127.0.0.1")
        assert entry.event.reason
        assert entry.event.numbers
    last = entries[-1].event.numbers
    assert last["prompt_tokens"] == finished.usage.prompt_tokens
    assert last["generated_tokens"] == finished.usage.generated_tokens
    assert last["queue_s"] == pytest.approx(finished.stages[-1].queue_s)
    for entry, stage in zip(entries[:2], finished.stages, strict=False):
        assert stage.stage in entry.event.reason
        assert entry.event.numbers == pytest.approx({"queue_s": stage.queue_s, "compute_s": stage.compute_s})


def test_a_quoted_answer_is_recorded_without_a_slot_or_tokens(daemon: RunningDaemon) -> None:
    ask(daemon.address, "quoted", mode=AnswerMode.QUOTE)
    entries = trail(daemon.address, "quoted")
    assert [entry.event.kind for entry in entries] == [kind for kind in ANSWERED if kind is not AuditEventKind.ADMITTED]
    last = entries[-1].event.numbers
    assert (last["prompt_tokens"], last["generated_tokens"], last["model_steps"]) == (0, 0, 0)


def test_a_refused_request_appears_with_the_numbers(daemon: RunningDaemon) -> None:
    with pytest.raises(ClientError) as refused:
        ask(daemon.address, "too-large", "How often must the pump bearings be greased? " * 180)
    assert refused.value.status is CallStatus.FAILED_PRECONDITION
    *_, entry = trail(daemon.address, "too-large")
    assert entry.event.kind is AuditEventKind.REFUSED
    assert entry.event.numbers["needed_tokens"] > entry.event.numbers["capacity_tokens"] > 0


@pytest.mark.smoke
def test_the_command_line_shows_a_timeline_of_the_id_that_ask_prints(daemon: RunningDaemon) -> None:
    asked = edge_rag(daemon, "ask", "-v", "--mode", "free", "--max-tokens", "24", QUESTION)
    printed = re.search(r" request (\w+)$", asked.stderr, re.M)
    assert printed is not None
    shown = edge_rag(daemon, "audit", "--request", printed.group(1))
    assert shown.exit_code == 0
    lines = shown.stdout.splitlines()
    assert [line.split()[3] for line in lines] == [kind.value for kind in ANSWERED]
    assert all(printed.group(1) in line for line in lines)
    assert "+0.000 s" in lines[0]
    assert "generated_tokens" in lines[-1]


def test_ctrl_c_ends_following_without_a_word(daemon: RunningDaemon) -> None:
    ask(daemon.address, "interrupted")
    command = [sys.executable, "-m", "edge_rag.cli.main", "audit", "--follow", "--json", "--server", daemon.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as following:
        assert following.stdout is not None
        assert following.stderr is not None
        assert json.loads(following.stdout.readline())
        following.send_signal(signal.SIGINT)
        rest, errors = following.communicate(timeout=60)
    assert following.returncode == 130
    assert all("number" in json.loads(line) or "dropped_entries" in json.loads(line) for line in rest.splitlines())
    assert errors == ""


def test_status_shows_the_percentiles_of_what_was_asked(daemon: RunningDaemon) -> None:
    ask(daemon.address, "measured")
    with Client(daemon.address) as client:
        latencies = {latency.measure: latency for latency in client.status().latencies}
    assert {LatencyMetric.QUEUE, LatencyMetric.FIRST_TOKEN, LatencyMetric.PER_TOKEN, LatencyMetric.COMPLETION} <= set(
        latencies
    )
    for latency in latencies.values():
        assert latency.samples >= 1
        assert 0 <= latency.p50_s <= latency.p95_s <= latency.p99_s
    assert latencies[LatencyMetric.COMPLETION].p99_s >= latencies[LatencyMetric.FIRST_TOKEN].p50_s
    shown = edge_rag(daemon, "status").stdout
    assert re.search(r"^completion   p50 .* of the latest \d+$", shown, re.M)


def samples(port: int) -> dict[str, float]:
    text = urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line[0] != "#"}


def test_a_daemon_keeps_a_rotated_file_and_serves_metrics_and_usage(
    start: Callable[..., RunningDaemon], tmp_path: Path, free_port: int
) -> None:
    file = tmp_path / "decisions.jsonl"
    before = json.dumps({"kept": "x" * ((16 << 20) - 100)}) + "\n"
    file.write_text(before)
    running = start(config=f"[metrics]\nport = {free_port}\n[audit]\nfile = {json.dumps(str(file))}\n")
    ingest(running.address, VALVE)
    asked = [ask(running.address, f"valve-{number}", "When does the relief valve open?") for number in range(3)]
    with pytest.raises(ClientError):
        ask(running.address, "refused", "valve " * 1000, mode=AnswerMode.FREE)

    kept = samples(free_port)
    prompt_tokens = sum(finished.usage.prompt_tokens for finished in asked)
    generated_tokens = sum(finished.usage.generated_tokens for finished in asked)
    assert kept['edge_rag_requests_total{method="Ask",status="OK"}'] == 3
    assert kept['edge_rag_requests_total{method="Ask",status="FAILED_PRECONDITION"}'] == 1
    assert kept["edge_rag_generation_tokens_total"] == generated_tokens
    assert kept["edge_rag_prefix_cache_queries_total"] == prompt_tokens
    assert kept["edge_rag_prefix_cache_hits_total"] == sum(finished.usage.cached_prompt_tokens for finished in asked)
    assert kept["edge_rag_prefix_cache_hits_total"] > 0
    (client,) = (label for label in kept if label.startswith("edge_rag_client_generation_tokens_total"))
    assert kept[client] == generated_tokens

    usage = json.loads(edge_rag(running, "usage", "--json").stdout)
    (only,) = usage["clients"]
    assert (only["requests"], only["refused"], only["generated_tokens"]) == (3, 1, generated_tokens)
    assert only["prompt_tokens"] == prompt_tokens
    assert only["slot_s"] > 0
    assert "3 requests, 1 refused" in edge_rag(running, "usage").stdout

    with Client(running.address) as reader:
        listed = list(reader.audit_events())
    assert [entry.number for entry in listed if isinstance(entry, AuditEntry)] == list(range(1, 19))

    assert running.stop() == 0
    assert file.with_name("decisions.jsonl.1").read_text() == before
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["number"] for line in lines] == list(range(1, 19))
    assert lines[-1]["request_id"] == "refused"


def test_a_daemon_that_stops_ends_those_who_follow(start: Callable[..., RunningDaemon]) -> None:
    running = start()
    ingest(running.address, VALVE)
    ask(running.address, "before", "When does the relief valve open?")
    with Client(running.address) as client:
        following = client.audit_events(follow=True)
        next(following)
        running.process.send_signal(signal.SIGTERM)
        rest = list(following)
    assert [entry.event.kind for entry in rest if isinstance(entry, AuditEntry)][-1] is AuditEventKind.FINISHED
    assert running.process.wait(30) == 0
