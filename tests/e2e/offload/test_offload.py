"""Two daemons over TLS: a board that offloads answers to a remote, and failures of the remote."""

import os
import random
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from edge_rag.client import AskOptions, Client
from edge_rag.core.answer import Citation, Finished, TextDelta
from edge_rag.core.documents.collection import CollectionSettings
from edge_rag.core.ids import require_recognized
from edge_rag.core.monitoring.event import AuditEntry, AuditEvent, AuditEventKind
from edge_rag.core.placement import OffloadRule
from edge_rag.core.query import AnswerMode
from tests.e2e.support.running_daemon import SAMPLES, RunningDaemon, ingest, start_daemon
from tests.e2e.support.secured_daemon import edge_rag, token

MANUAL = (SAMPLES / "lubrication-schedule.md").read_bytes()
QUESTION = "How often must the pump bearings be greased?"
TIMES = 100 if "EDGE_RAG_SOAK_SECONDS" in os.environ else 3


@dataclass
class Pair:
    """A board and its remote, which may be restarted."""

    board: RunningDaemon
    remote_daemon: RunningDaemon


def start_remote(folder: Path) -> RunningDaemon:
    data = folder / "remote_daemon"
    edge_rag("tls", "init", "--host", "127.0.0.1", data=data)
    (folder / "peer.token").write_text(token("board", data, "--roles", "peer"))
    return start_remote_at("127.0.0.1:0", folder)


def start_remote_at(address: str, folder: Path) -> RunningDaemon:
    config = f'local_listen = "unix:{folder}/remote_daemon.socket"\n[tls]\nalways = true\n'
    return start_daemon(folder / "remote_daemon", folder / "remote_daemon.log", config, listen=address)


def start_board(folder: Path, address: str) -> RunningDaemon:
    config = f"""
[offload]
mode = "prefer-remote"
redact = ['2,000']
[[offload.remotes]]
name = "big"
address = "{address}"
authority = "{folder}/remote_daemon/tls/ca.pem"
credential = "{folder}/peer.token"
"""
    board = start_daemon(folder / "board", folder / "board.log", config)
    for rule in OffloadRule:
        ingest(board.address, {"lubrication.md": MANUAL}, rule.value)
        with Client(board.address) as client:
            client.update_collection(rule.value, CollectionSettings(offload=rule), {"offload"})
    return board


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    remote_daemon = start_remote(folder)
    board = start_board(folder, remote_daemon.address)
    yield Pair(board, remote_daemon)
    board.kill()
    remote_daemon.kill()


def asked(
    client: Client, rule: OffloadRule, request_id: str, mode: AnswerMode = AnswerMode.FREE
) -> tuple[str, list[Citation]]:
    options = AskOptions(collection=rule.value, request_id=request_id, mode=mode, max_tokens=40)
    events = list(client.ask(QUESTION, options))
    assert isinstance(events[-1], Finished)
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    return text, [event for event in events if isinstance(event, Citation)]


def audit_events(client: Client, request_id: str = "") -> list[AuditEvent]:
    entries = client.audit_events(request_id=request_id)
    return [entry.event for entry in entries if isinstance(entry, AuditEntry)]


def kinds(client: Client, request_id: str) -> set[AuditEventKind]:
    return {require_recognized(event.kind) for event in audit_events(client, request_id)}


def test_a_remote_answer_equals_the_local_one_with_its_citations(pair: Pair) -> None:
    with Client(pair.board.address) as client:
        for mode in (AnswerMode.FREE, AnswerMode.CITE):
            here = asked(client, OffloadRule.NEVER, f"here-{mode.value}", mode)
            assert here == asked(client, OffloadRule.ALLOWED, f"there-{mode.value}", mode)
            assert AuditEventKind.SENT not in kinds(client, f"here-{mode.value}")
            assert AuditEventKind.SENT in kinds(client, f"there-{mode.value}")
            assert AuditEventKind.TAKEN_OVER not in kinds(client, f"there-{mode.value}")
        (remote,) = client.status().remotes
    assert (remote.name, remote.breaker) == ("big", "closed")
    assert remote.answers >= 1
    assert remote.sent_bytes > 0


def test_a_quoted_answer_needs_no_remote(pair: Pair) -> None:
    with Client(pair.board.address) as client:
        text, citations = asked(client, OffloadRule.ALLOWED, "quoted", AnswerMode.QUOTE)
        assert not kinds(client, "quoted") & {AuditEventKind.PLACED, AuditEventKind.SENT}
    assert "2,000 operating hours" in text
    assert citations[0].text == text


def test_the_audit_log_has_the_placement_and_the_sent_data(pair: Pair) -> None:
    with Client(pair.board.address) as client:
        asked(client, OffloadRule.ALLOWED, "audit_events")
        placed, sent = (
            next(event for event in audit_events(client, "audit_events") if event.kind is kind)
            for kind in (AuditEventKind.PLACED, AuditEventKind.SENT)
        )
    assert placed.reason == "generating on a remote: the mode prefers remotes"
    assert placed.numbers["prompt_tokens"] > 0
    assert sent.reason.startswith("sent to big, unredacted, SHA-256 ")
    assert sent.numbers["bytes"] > 100


@pytest.fixture
def own_pair(tmp_path: Path) -> Iterator[Pair]:
    remote_daemon = start_remote(tmp_path)
    pair = Pair(start_board(tmp_path, remote_daemon.address), remote_daemon)
    yield pair
    pair.board.kill()
    pair.remote_daemon.kill()


def answered(
    client: Client, rule: OffloadRule, request_id: str, after: Callable[[int], None] = lambda pieces: None
) -> str:
    """Asks for a long answer and returns it. ``after`` is called with the number of events so far, first with 0."""
    options = AskOptions(collection=rule.value, request_id=request_id, mode=AnswerMode.FREE, max_tokens=100)
    events = []
    after(0)
    for event in client.ask(QUESTION, options):
        events.append(event)
        after(len(events))
    assert isinstance(events[-1], Finished)
    return "".join(event.text for event in events if isinstance(event, TextDelta))


@pytest.mark.soak
@pytest.mark.parametrize("signal_number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_remote_frozen_or_killed_at_any_chunk_never_costs_a_word(
    own_pair: Pair, tmp_path: Path, signal_number: signal.Signals
) -> None:
    words = random.Random(9)
    with Client(own_pair.board.address, timeout_s=30) as client:
        alone = answered(client, OffloadRule.NEVER, "alone")
        for number in range(TIMES):
            word = words.randrange(30) if number else 0

            def strike(pieces: int, word: int = word) -> None:
                if pieces == word:
                    own_pair.remote_daemon.process.send_signal(signal_number)

            assert answered(client, OffloadRule.ALLOWED, f"struck-{number}", strike) == alone
            if signal_number is signal.SIGSTOP:
                own_pair.remote_daemon.process.send_signal(signal.SIGCONT)
            else:
                own_pair.remote_daemon.kill()
                own_pair.remote_daemon = start_remote_at(own_pair.remote_daemon.address, tmp_path)
        assert kinds(client, "struck-0") & {AuditEventKind.TAKEN_OVER, AuditEventKind.HEDGED}
