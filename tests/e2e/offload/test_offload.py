"""Two daemons over TLS: a board that borrows the other's model, whatever becomes of that one."""

from __future__ import annotations

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
from tests.support.network_delay import slowed

MANUAL = (SAMPLES / "lubrication-schedule.md").read_bytes()
QUESTION = "How often must the pump bearings be greased?"
TIMES = 100 if "EDGE_RAG_SOAK_SECONDS" in os.environ else 3
UNHURRIED = "first_token_timeout_seconds = 20\nstall_seconds = 20"
HURRIED = "first_token_timeout_seconds = 1\nstall_seconds = 0.5\nfailures = 100\nrest_seconds = 0.001"
"""Gives up soon, and asks again nevertheless, so that each question meets what the other machine does."""


@dataclass
class Pair:
    """A board, and the machine that lends it its model; that one may be started anew."""

    board: RunningDaemon
    lender: RunningDaemon


def lending(folder: Path) -> RunningDaemon:
    """Starts a machine that lends its model to who shows a peer's token."""
    data = folder / "lender"
    edge_rag("tls", "init", "--host", "127.0.0.1", data=data)
    (folder / "peer.token").write_text(token("board", data, "--roles", "peer"))
    return lending_at("127.0.0.1:0", folder)


def lending_at(address: str, folder: Path) -> RunningDaemon:
    """Starts it, again if need be, at an address."""
    config = f'local_listen = "unix:{folder}/lender.socket"\n[tls]\nalways = true\n'
    return start_daemon(folder / "lender", folder / "lender.log", config, listen=address)


def borrowing(folder: Path, address: str, bounds: str = UNHURRIED) -> RunningDaemon:
    """Starts a board that borrows the model of the machine at an address."""
    config = f"""
[offload]
mode = "prefer-remote"
{bounds}
redact = ['2,000']
[[offload.remotes]]
name = "big"
address = "{address}"
authority = "{folder}/lender/tls/ca.pem"
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
    lender = lending(folder)
    board = borrowing(folder, lender.address)
    yield Pair(board, lender)
    board.kill()
    lender.kill()


def asked(
    client: Client, rule: OffloadRule, request_id: str, mode: AnswerMode = AnswerMode.QUOTE
) -> tuple[str, list[Citation]]:
    """Asks the question and returns the answer with its citations, which came to a good end."""
    options = AskOptions(collection=rule.value, request_id=request_id, mode=mode, max_tokens=40)
    events = list(client.ask(QUESTION, options))
    assert isinstance(events[-1], Finished)
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    return text, [event for event in events if isinstance(event, Citation)]


def trail(client: Client, request_id: str) -> list[AuditEvent]:
    entries = client.audit_events(request_id=request_id)
    return [entry.event for entry in entries if isinstance(entry, AuditEntry)]


def kinds(client: Client, request_id: str) -> set[AuditEventKind]:
    return {require_recognized(decision.kind) for decision in trail(client, request_id)}


def test_an_answer_written_elsewhere_is_the_one_written_here_with_its_citations(pair: Pair) -> None:
    with Client(pair.board.address) as client:
        for mode in AnswerMode:
            here = asked(client, OffloadRule.NEVER, f"here-{mode.value}", mode)
            assert here == asked(client, OffloadRule.ALLOWED, f"there-{mode.value}", mode)
            assert AuditEventKind.SENT not in kinds(client, f"here-{mode.value}")
            assert AuditEventKind.SENT in kinds(client, f"there-{mode.value}")
            assert AuditEventKind.TAKEN_OVER not in kinds(client, f"there-{mode.value}")
        (remote,) = client.status().remotes
    assert (remote.name, remote.breaker) == ("big", "closed")
    assert remote.answers >= 1
    assert remote.sent_bytes > 0


def test_the_trail_says_where_an_answer_was_written_and_what_was_sent(pair: Pair) -> None:
    with Client(pair.board.address) as client:
        asked(client, OffloadRule.ALLOWED, "trail")
        placed, sent = (
            next(decision for decision in trail(client, "trail") if decision.kind is kind)
            for kind in (AuditEventKind.PLACED, AuditEventKind.SENT)
        )
    assert placed.reason == "generating on a remote: the mode prefers remotes"
    assert placed.numbers["prompt_tokens"] > 0
    assert sent.reason.startswith("sent to big, unredacted, SHA-256 ")
    assert sent.numbers["bytes"] > 100


def test_what_the_other_machine_wrote_is_in_the_clients_usage(pair: Pair) -> None:
    with Client(pair.board.address) as client:
        asked(client, OffloadRule.ALLOWED, "before", AnswerMode.FREE)
        (before,) = client.usage().clients
        options = AskOptions(collection=OffloadRule.ALLOWED.value, mode=AnswerMode.FREE, max_tokens=40)
        finished = list(client.ask(QUESTION, options))[-1]
        (after,) = client.usage().clients
    assert isinstance(finished, Finished)
    assert finished.usage.generated_tokens > 1
    assert after.requests == before.requests + 1
    assert after.prompt_tokens == before.prompt_tokens + finished.usage.prompt_tokens
    assert after.generated_tokens == before.generated_tokens + finished.usage.generated_tokens
    assert after.slot_s == before.slot_s


def test_what_is_redacted_comes_back_as_it_was(pair: Pair) -> None:
    with Client(pair.board.address) as client:
        text, citations = asked(client, OffloadRule.REDACTED, "redacted")
        (sent,) = [decision for decision in trail(client, "redacted") if decision.kind is AuditEventKind.SENT]
    assert "2,000 operating hours" in text
    assert citations[0].text == text
    assert ", redacted," in sent.reason


@pytest.mark.parametrize("blow", [signal.SIGSTOP, signal.SIGKILL])
def test_a_machine_that_is_frozen_or_killed_costs_nobody_an_answer(pair: Pair, blow: signal.Signals) -> None:
    with Client(pair.board.address, timeout_s=60) as client:
        here = asked(client, OffloadRule.NEVER, f"here-{blow.name}")
        pair.lender.process.send_signal(blow)
        try:
            for number in range(4):
                assert asked(client, OffloadRule.ALLOWED, f"{blow.name}-{number}") == here
        finally:
            pair.lender.process.send_signal(signal.SIGCONT)
        (remote,) = client.status().remotes
    assert remote.failures >= 3
    assert remote.breaker == "open"


@pytest.fixture
def hurried(tmp_path: Path) -> Iterator[Pair]:
    """A board that gives up soon, and asks again nevertheless."""
    lender = lending(tmp_path)
    pair = Pair(borrowing(tmp_path, lender.address, HURRIED), lender)
    yield pair
    pair.board.kill()
    pair.lender.kill()


def written(
    client: Client, rule: OffloadRule, request_id: str, after: Callable[[int], None] = lambda pieces: None
) -> str:
    """Asks for a long answer and returns it. ``after`` is told how many pieces have come, 0 before the first."""
    options = AskOptions(collection=rule.value, request_id=request_id, mode=AnswerMode.FREE, max_tokens=100)
    events = []
    after(0)
    for event in client.ask(QUESTION, options):
        events.append(event)
        after(len(events))
    assert isinstance(events[-1], Finished)
    return "".join(event.text for event in events if isinstance(event, TextDelta))


@pytest.mark.soak
@pytest.mark.parametrize("blow", [signal.SIGSTOP, signal.SIGKILL])
def test_frozen_or_killed_at_any_word_the_other_machine_costs_nobody_a_word(
    hurried: Pair, tmp_path: Path, blow: signal.Signals
) -> None:
    words = random.Random(9)
    with Client(hurried.board.address, timeout_s=30) as client:
        alone = written(client, OffloadRule.NEVER, "alone")
        for number in range(TIMES):
            word = words.randrange(30) if number else 0

            def strike(pieces: int, word: int = word) -> None:
                if pieces == word:
                    hurried.lender.process.send_signal(blow)

            assert written(client, OffloadRule.ALLOWED, f"struck-{number}", strike) == alone
            if blow is signal.SIGSTOP:
                hurried.lender.process.send_signal(signal.SIGCONT)
            else:
                hurried.lender.kill()
                hurried.lender = lending_at(hurried.lender.address, tmp_path)
        assert kinds(client, "struck-0") & {AuditEventKind.TAKEN_OVER, AuditEventKind.HEDGED}


@pytest.mark.soak
def test_twenty_times_as_slow_the_other_machine_costs_nobody_an_answer(hurried: Pair) -> None:
    with Client(hurried.board.address, timeout_s=30) as client:
        alone = written(client, OffloadRule.NEVER, "alone")
        assert written(client, OffloadRule.ALLOWED, "quick") == alone
        with slowed(hurried.lender.process.pid, 20):
            for number in range(TIMES):
                assert written(client, OffloadRule.ALLOWED, f"slow-{number}") == alone
        assert AuditEventKind.SENT in kinds(client, f"slow-{TIMES - 1}")
