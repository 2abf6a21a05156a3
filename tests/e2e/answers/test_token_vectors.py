"""A first question encodes no passage: the reranker takes the token vectors that ingest computed."""

import re
import socket
from collections.abc import Callable
from urllib.request import urlopen

from edge_rag.api.v1 import rag_pb2
from edge_rag.storage.backup import TOKEN_VECTORS
from tests.e2e.answers.test_asking import QUESTIONS, ask
from tests.e2e.support.running_daemon import RunningDaemon, ingest, sample_documents

ASKED = [rag_pb2.AskRequest(question=question) for question in QUESTIONS[:3]]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def sources(port: int) -> dict[str, int]:
    page = urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    rows = re.findall(r'edge_rag_reranked_passages_total\{vectors="(\w+)"\} (\d+)', page)
    return {name: int(count) for name, count in rows}


def asked_after_ingest(start: Callable[..., RunningDaemon]) -> tuple[RunningDaemon, int, str, list[str]]:
    """Starts a daemon with documents; returns it, its port of metrics, its settings, and its answers."""
    port = free_port()
    config = f"[metrics]\nport = {port}\n"
    daemon = start(config=config)
    ingest(daemon.address, sample_documents())
    first = [ask(daemon.address, each).text for each in ASKED]
    return daemon, port, config, first


def test_no_passage_is_encoded_for_a_question_after_ingest_nor_after_a_restart(
    start: Callable[..., RunningDaemon],
) -> None:
    daemon, port, config, first = asked_after_ingest(start)
    assert sources(port)["disk"] > 0
    assert sources(port)["encoded"] == 0
    assert daemon.stop() == 0

    daemon = start(daemon.data_dir, config=config)
    assert [ask(daemon.address, each).text for each in ASKED] == first
    assert sources(port)["encoded"] == 0
    assert daemon.stop() == 0


def test_a_lost_file_is_filled_again_by_questions_whose_answers_stay_the_same(
    start: Callable[..., RunningDaemon],
) -> None:
    daemon, port, config, first = asked_after_ingest(start)
    daemon.kill()
    (daemon.data_dir / TOKEN_VECTORS).unlink()

    daemon = start(daemon.data_dir, config=config)
    assert [ask(daemon.address, each).text for each in ASKED] == first
    assert sources(port)["encoded"] > 0
    assert daemon.stop() == 0

    daemon = start(daemon.data_dir, config=config)
    assert [ask(daemon.address, each).text for each in ASKED] == first
    assert sources(port)["encoded"] == 0


def test_without_space_for_them_answers_are_the_same(start: Callable[..., RunningDaemon]) -> None:
    daemon = start()
    ingest(daemon.address, sample_documents())
    first = [ask(daemon.address, each).text for each in ASKED]
    assert daemon.stop() == 0
    daemon = start(daemon.data_dir, config="[retriever]\ntoken_vectors_mib = 0\n")
    assert not (daemon.data_dir / TOKEN_VECTORS).exists()
    assert [ask(daemon.address, each).text for each in ASKED] == first
