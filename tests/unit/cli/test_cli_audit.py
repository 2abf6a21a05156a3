import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest
from click.testing import CliRunner
from google.protobuf.timestamp_pb2 import Timestamp

from edge_rag.api.v1 import admin_pb2, rag_pb2
from edge_rag.cli.main import main
from edge_rag.core.monitoring.event import AuditEntry
from edge_rag.core.shapes.encoder import encode
from tests.unit.cli.scripted_daemon import ScriptedDaemon, answering, refusing
from tests.unit.telemetry.audit_events import audit_event


def sent(number: int, kind: admin_pb2.AuditEventKind.ValueType, at_s: float, **more: Any) -> admin_pb2.AuditEvent:
    return admin_pb2.AuditEvent(
        number=number,
        at=Timestamp(seconds=1_790_000_000 + int(at_s)),
        monotonic_seconds=at_s,
        kind=kind,
        request_id=more.pop("request_id", "q-1"),
        client="ipv4:127.0.0.1",
        priority=rag_pb2.PRIORITY_BATCH,
        **more,
    )


QUEUED = sent(5, admin_pb2.AUDIT_EVENT_KIND_QUEUED, 10.0, reason="waits for a slot", numbers={"waiting_requests": 3})
PREEMPTED = sent(
    6,
    admin_pb2.AUDIT_EVENT_KIND_PREEMPTED,
    12.5,
    reason="pages ran out",
    numbers={"pages_free": 0, "waited_s": 0.25},
    preempted_for="q-2",
)


def listing(*responses: admin_pb2.ListAuditEventsResponse) -> Any:
    def handler(request: admin_pb2.ListAuditEventsRequest, _: Any) -> Iterator[admin_pb2.ListAuditEventsResponse]:
        yield from responses

    return handler


def decided(made: admin_pb2.AuditEvent, dropped_entries: int = 0) -> admin_pb2.ListAuditEventsResponse:
    return admin_pb2.ListAuditEventsResponse(event=made, dropped_entries=dropped_entries)


def test_a_timeline_says_when_what_who_why_and_on_which_numbers(scripted: ScriptedDaemon) -> None:
    scripted.script("ListAuditEvents", listing(decided(QUEUED, dropped_entries=4), decided(PREEMPTED)))
    result = scripted.run("audit")
    assert result.exit_code == 0
    first, second = (re.sub(r"^\d\d:\d\d:\d\d\.000", "TIME", line) for line in result.stdout.splitlines())
    assert first == ("TIME    +0.000 s  queued      q-1 (batch, ipv4:127.0.0.1): waits for a slot [waiting_requests 3]")
    assert second == (
        "TIME    +2.500 s  preempted   q-1 (batch, ipv4:127.0.0.1): pages ran out in favour of q-2"
        " [pages_free 0 · waited 250 ms]"
    )
    assert result.stderr == "4 earlier events are no longer kept\n"


def test_as_json_decisions_and_losses_are_lines_in_their_stable_shape(scripted: ScriptedDaemon) -> None:
    lost = admin_pb2.ListAuditEventsResponse(dropped_entries=2)
    scripted.script("ListAuditEvents", listing(decided(PREEMPTED), lost))
    result = scripted.run("audit", "--json")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert lines[1] == {"dropped_entries": 2}
    assert lines[0]["kind"] == "preempted"
    assert lines[0]["preempted_for"] == "q-2"
    assert lines[0]["numbers"] == {"pages_free": 0.0, "waited_s": 0.25}
    assert lines[0].keys() == entry_object_keys()


def entry_object_keys() -> set[str]:
    return set(encode(AuditEntry(1, datetime.now(UTC), audit_event())))


def test_a_request_of_which_nothing_is_kept_ends_with_four(scripted: ScriptedDaemon) -> None:
    scripted.script("ListAuditEvents", listing())
    unknown = scripted.run("audit", "--request", "q-9", "--json")
    assert (unknown.exit_code, json.loads(unknown.stdout)["error"]["code"]) == (4, "NOT_FOUND")
    assert scripted.run("audit").exit_code == 0


def test_the_server_may_be_named_before_the_command(
    runner: CliRunner, scripted: ScriptedDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGE_RAG_SERVER", "127.0.0.1:1")
    scripted.script("ListAuditEvents", listing(decided(QUEUED)))
    result = runner.invoke(main, ["--server", scripted.address, "audit"])
    assert (result.exit_code, scripted.calls["ListAuditEvents"]) == (0, 1), result.output


def test_a_reason_cannot_steer_the_terminal(scripted: ScriptedDaemon) -> None:
    nasty = sent(1, admin_pb2.AUDIT_EVENT_KIND_FAILED, 1.0, reason="\x1b[2Jgone")
    scripted.script("ListAuditEvents", listing(decided(nasty)))
    assert "\x1b" not in scripted.run("audit").stdout


def test_the_filter_the_limit_and_following_reach_the_daemon(scripted: ScriptedDaemon) -> None:
    asked: list[admin_pb2.ListAuditEventsRequest] = []

    def handler(request: admin_pb2.ListAuditEventsRequest, _: Any) -> Iterator[admin_pb2.ListAuditEventsResponse]:
        asked.append(request)
        yield from ()

    scripted.script("ListAuditEvents", handler)
    for arguments in ([], ["--request", "q-1", "--limit", "0", "--follow"]):
        assert scripted.run("audit", *arguments).exit_code == 0
    assert asked == [
        admin_pb2.ListAuditEventsRequest(),
        admin_pb2.ListAuditEventsRequest(request_id="q-1", limit=0, follow=True),
    ]


def test_a_kind_of_decision_that_only_a_newer_daemon_knows_is_shown_among_the_others(scripted: ScriptedDaemon) -> None:
    later = sent(6, 4000, 11.0, reason="moved to the attic")  # type: ignore[arg-type]
    scripted.script("ListAuditEvents", listing(decided(QUEUED), decided(later), decided(PREEMPTED)))
    lines = scripted.run("audit").stdout.splitlines()
    assert [line.split("s  ")[1].split()[0] for line in lines] == ["queued", "unrecognized_4000", "preempted"]
    assert lines[1].endswith("q-1 (batch, ipv4:127.0.0.1): moved to the attic")
    as_json = scripted.run("audit", "--json").stdout.splitlines()
    assert [json.loads(line)["kind"] for line in as_json] == ["queued", "unrecognized_4000", "preempted"]


def test_usage_names_the_clients_and_sums_up_the_others(scripted: ScriptedDaemon) -> None:
    alice = admin_pb2.ClientUsage(client="alice", requests=2, prompt_tokens=100, cached_prompt_tokens=40)
    others = admin_pb2.ClientUsage(requests=9, refused=1, generated_tokens=7, slot_seconds=1.5)
    reply = admin_pb2.GetUsageResponse(since=Timestamp(seconds=1_790_000_000), clients=[alice], others=others)
    scripted.script("GetUsage", lambda request, context: reply)
    shown = scripted.run("usage").stdout.splitlines()
    assert shown == [
        "alice  2 requests, 0 refused, 100 prompt tokens (40 cached), 0 generated, 0.00 s in slots, 0.00 s of ingest",
        "all others  9 requests, 1 refused, 0 prompt tokens (0 cached), 7 generated, 1.50 s in slots, 0.00 s of ingest",
    ]
    as_json = scripted.json("usage")
    assert as_json["since"] == "2026-09-21T14:13:20+00:00"
    assert [client["client"] for client in as_json["clients"]] == ["alice", None]


def test_a_failed_question_says_the_id_that_audit_takes(scripted: ScriptedDaemon) -> None:
    scripted.script("Ask", refusing(grpc.StatusCode.FAILED_PRECONDITION, "needs 900 tokens"))
    result = scripted.run("ask", "how?", "--request-id", "ticket-17")
    assert result.exit_code == 5
    assert result.stderr == "request ticket-17\nedge-rag: needs 900 tokens\n"


def test_each_question_of_a_file_gets_an_id_of_its_own(scripted: ScriptedDaemon) -> None:
    scripted.script("Ask", answering())
    arguments = ["ask", "--questions", "-"]
    result = scripted.run(*arguments, given="one?\ntwo?\n")
    ids = [json.loads(line)["request_id"] for line in result.stdout.splitlines()]
    assert len(set(ids)) == 2
    both = scripted.run(*arguments, "--request-id", "same", given="one?\n")
    assert both.exit_code == 2
