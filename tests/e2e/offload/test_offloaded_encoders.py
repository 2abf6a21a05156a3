"""Two daemons over TLS: a board that offloads encoding to a remote, and failures of the remote."""

import signal
from collections.abc import Iterator

import pytest

from edge_rag.client import AskOptions, Client, SearchOptions
from edge_rag.core.answer import Finished, TextDelta
from edge_rag.core.documents.collection import CollectionSettings
from edge_rag.core.monitoring.event import AuditEvent, AuditEventKind
from edge_rag.core.placement import OffloadRule
from tests.e2e.offload.test_offload import Pair, audit_events, start_remote
from tests.e2e.support.jobs import final_states, start_job, watch
from tests.e2e.support.running_daemon import ingest, start_daemon

MANUAL = "\n\n".join(
    f"Pump {number} is greased every {10 * number} hours with grease of grade {number % 7}. The strainer of pump "
    f"{number} is opened only after its suction valve was closed, and the drain is kept open meanwhile. Report leaks "
    f"of pump {number} to the watch, who notes them in the book on page {number}."
    for number in range(1, 100)
).encode()
QUESTION = "How often is pump 71 greased?"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    remote_daemon = start_remote(folder)
    config = f"""
[offload]
mode = "prefer-remote"
redact = ['pump']
[[offload.remotes]]
name = "big"
address = "{remote_daemon.address}"
authority = "{folder}/remote_daemon/tls/ca.pem"
credential = "{folder}/peer.token"
uses = ["embed"]
"""
    board = start_daemon(folder / "board", folder / "board.log", config)
    with Client(board.address) as client:
        for rule in OffloadRule:
            client.create_collection(rule.value, CollectionSettings(offload=rule))
    yield Pair(board, remote_daemon)
    board.kill()
    remote_daemon.kill()


def sent(client: Client, request_id: str = "") -> list[AuditEvent]:
    return [event for event in audit_events(client, request_id) if event.kind is AuditEventKind.SENT]


def found(client: Client, collection: str) -> list[tuple[int, int, float, float | None]]:
    reply = client.search(QUESTION, SearchOptions(collection=collection, limit=8, explain=True))
    return [
        (hit.start, hit.end, hit.score, explained.dense_score)
        for hit, explained in zip(reply.hits, reply.explanations, strict=True)
    ]


def answer(client: Client, collection: str, request_id: str) -> str:
    events = list(client.ask(QUESTION, AskOptions(collection=collection, request_id=request_id)))
    assert isinstance(events[-1], Finished)
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def test_remote_encoding_equals_local_encoding(pair: Pair) -> None:
    with Client(pair.board.address) as client:
        for rule in OffloadRule:
            before = len(sent(client))
            ingest(pair.board.address, {"manual.md": MANUAL}, rule.value)
            assert (len(sent(client)) > before) == (rule is OffloadRule.ALLOWED)
        expected = found(client, "never")
        assert len(expected) == 8
        assert found(client, "allowed") == expected
        here = answer(client, "never", "here")
        assert "every 710 hours" in here
        assert answer(client, "allowed", "there") == here
        assert not sent(client, "there"), "questions are embedded here"
        (remote,) = client.status().remotes
    assert remote.uses == ("embed",)
    assert remote.embedded_texts > 40
    assert (remote.answers, remote.failures, remote.breaker) == (0, 0, "closed")


def test_the_audit_log_has_the_routing_numbers_and_the_sent_data(pair: Pair) -> None:
    with Client(pair.board.address) as client:
        events = audit_events(client)
    reasons = [each.reason for each in events if each.kind is AuditEventKind.PLACED]
    assert "embedding passages locally: redaction would change vectors" in reasons
    remote = [each for each in events if each.reason == "embedding passages on a remote: the mode prefers remotes"]
    assert {"texts", "big_supported", "big_breaker_allows"} <= set(remote[0].numbers)
    sent_events = [each for each in events if each.kind is AuditEventKind.SENT]
    assert all(" unredacted, SHA-256 " in each.reason and each.numbers["bytes"] > 20 for each in sent_events)


@pytest.mark.parametrize("signal_number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_frozen_or_killed_remote_never_costs_a_document_or_an_answer(
    pair: Pair, signal_number: signal.Signals
) -> None:
    with Client(pair.board.address, timeout_s=120) as client:
        expected = found(client, "never")
        pair.remote_daemon.process.send_signal(signal_number)
        try:
            name = f"{signal_number.name}.md"
            job, _ = start_job(pair.board.address, {name: MANUAL}, "allowed")
            assert final_states(watch(pair.board.address, job)) == {name: "added"}
            for number in range(4):
                assert "every 710 hours" in answer(client, "allowed", f"{signal_number.name}-{number}")
        finally:
            pair.remote_daemon.process.send_signal(signal.SIGCONT)
        (remote,) = client.status().remotes
        assert remote.failures >= 1
        client.delete("manual.md", collection="allowed")
        assert found(client, "allowed") == expected
        ingest(pair.board.address, {"manual.md": MANUAL}, "allowed")
        client.delete(name, collection="allowed")
