"""One caller that sends all it may, and another beside it, over TLS with a token each."""

import collections
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import chain

import grpc
import pytest

from edge_rag.api.v1 import rag_pb2, rag_pb2_grpc
from edge_rag.client import Client
from tests.e2e.support.running_daemon import SAMPLES, ingest, start_daemon
from tests.e2e.support.secured_daemon import Box, edge_rag, token

IN_FLIGHT = 24
QUOTA = 600


@pytest.fixture(scope="module")
def callers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    folder = tmp_path_factory.mktemp("callers")
    data = folder / "data"
    edge_rag("tls", "init", "--host", "127.0.0.1", data=data)
    tokens = {name: token(name, data) for name in ("flood", "other")}
    for name in ("frugal", "frugal-asker"):
        tokens[name] = token(name, data, "--quota", f"{QUOTA} tokens/min")
    config = f'local_listen = "unix:{folder}/socket"\n[tls]\nalways = true\n'
    with start_daemon(data, folder / "log", config) as running:
        names = ("operating-manual.pdf", "parts-list.md", "maintenance-log.txt")
        ingest(f"unix:{folder}/socket", {name: (SAMPLES / name).read_bytes() for name in names})
        yield Box(running, data, tokens)


def long_question(seed: int) -> str:
    words = (SAMPLES / "maintenance-log.txt").read_text(encoding="utf-8").split()
    return " ".join(random.Random(seed).choices(words, k=8190))[:8190].strip()


def test_a_search_passes_the_long_searches_of_another_caller(callers: Box) -> None:
    """It comes when at least half of them wait, and is answered while most of those still wait."""
    socket = f"unix:{callers.data.parent}/socket"
    with (
        callers.channel("flood") as flooding,
        callers.channel("other") as calm,
        closing(Client(socket, timeout_s=60)) as operator,
        ThreadPoolExecutor(1) as pool,
    ):
        flood, one = rag_pb2_grpc.RagStub(flooding), rag_pb2_grpc.RagStub(calm)
        one.Search(rag_pb2.SearchRequest(query="bearing"), timeout=120)
        calls = [
            flood.Search.future(
                rag_pb2.SearchRequest(query=long_question(number), limit=100, explain=True), timeout=240
            )
            for number in range(IN_FLIGHT)
        ]
        while sum(stage.waiting for stage in operator.status().stages) < IN_FLIGHT // 2:
            assert not all(call.done() for call in calls), "they were answered before they could wait"
        answered = pool.submit(one.Search, rag_pb2.SearchRequest(query="pump"), timeout=120).result()
        waiting = sum(not call.done() for call in calls)
        assert len(answered.hits) > 0
        assert waiting >= IN_FLIGHT // 4
        for call in calls:
            assert len(call.result().hits) > 10


def test_searches_are_charged_to_the_quota(callers: Box) -> None:
    """Each is charged its question and the passages that the reranker compared, about two thousand tokens."""
    with callers.channel("frugal") as channel:
        rag = rag_pb2_grpc.RagStub(channel)
        rag.Search(rag_pb2.SearchRequest(query="pump bearing"), timeout=60)
        with pytest.raises(grpc.RpcError) as refused:
            rag.Search(rag_pb2.SearchRequest(query="pump bearing"), timeout=60)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert f"{QUOTA} tokens a minute" in str(refused.value.details())


def test_quoted_answers_are_charged_what_was_read_though_no_model_ran(callers: Box) -> None:
    with callers.channel("frugal-asker") as channel:
        rag = rag_pb2_grpc.RagStub(channel)
        asked = rag_pb2.AskRequest(question="How often are the pump bearings greased?")
        *_, last = rag.Ask(asked, timeout=60)
        assert last.finished.usage == rag_pb2.Usage()
        with pytest.raises(grpc.RpcError) as refused:
            collections.deque(chain.from_iterable(rag.Ask(asked, timeout=60) for _ in range(QUOTA)), 0)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert f"{QUOTA} tokens a minute" in str(refused.value.details())
