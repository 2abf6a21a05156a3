"""What a daemon holds after many answers, complete and cancelled, is what it held before."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import grpc
import psutil
import pytest

from edge_rag.api.v1 import admin_pb2, admin_pb2_grpc, rag_pb2, rag_pb2_grpc
from tests.e2e.support.running_daemon import RunningDaemon, ingest, sample_documents, start_daemon

LONG = "EDGE_RAG_SOAK_SECONDS" in os.environ
WARM_UP = 4_000 if LONG else 150
ASKS, CANCELLED = (5_000, 500) if LONG else (200, 40)
QUESTIONS = (
    "How often must the pump bearings be greased?",
    "What is the rated flow of the pump?",
    "Which alarm means low oil pressure?",
    "What is the shelf life of nothing at all?",
)


@dataclass(frozen=True)
class Held:
    """What a daemon holds while it is idle."""

    resident_bytes: int
    files: int
    threads: int
    pages_used: int
    slots_busy: int


def held(running: RunningDaemon) -> Held:
    with grpc.insecure_channel(running.address) as channel:
        engine = admin_pb2_grpc.AdminStub(channel).GetStatus(admin_pb2.GetStatusRequest(), timeout=30).engine
    process = psutil.Process(running.process.pid)
    return Held(
        process.memory_info().rss, process.num_fds(), process.num_threads(), engine.pages_used, engine.slots_busy
    )


def ask(rag: rag_pb2_grpc.RagStub, number: int, cancel: bool) -> None:
    mode = rag_pb2.ANSWER_MODE_FREE if cancel else rag_pb2.ANSWER_MODE_QUOTE
    call = rag.Ask(rag_pb2.AskRequest(question=QUESTIONS[number % len(QUESTIONS)], mode=mode), timeout=120)
    try:
        for received, _ in enumerate(call):
            if cancel and received >= number % 3:
                call.cancel()  # type: ignore[no-untyped-call]
    except grpc.RpcError as error:
        assert cancel, error


def ask_many(running: RunningDaemon, asks: int, cancelled: int) -> None:
    with grpc.insecure_channel(running.address) as channel, ThreadPoolExecutor(8) as pool:
        rag = rag_pb2_grpc.RagStub(channel)
        list(pool.map(lambda number: ask(rag, number, False), range(asks)))
        list(pool.map(lambda number: ask(rag, number, True), range(cancelled)))
        ask(rag, 0, False)


@pytest.mark.soak
def test_after_many_answers_and_cancellations_memory_files_threads_and_pages_are_where_they_were(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with start_daemon(tmp_path / "data", tmp_path / "log") as running:
        ingest(running.address, sample_documents())
        # Caches fill and thread pools start with the first answers.
        ask_many(running, WARM_UP, WARM_UP // 5)
        before = held(running)
        ask_many(running, ASKS, CANCELLED)
        after = held(running)
    grown = (after.resident_bytes - before.resident_bytes) / (1 << 20)
    files, threads = after.files - before.files, after.threads - before.threads
    growth = f"resident memory {grown:+.1f} MiB, files {files:+}, threads {threads:+}"
    record_property("measured", f"{ASKS:,} answers and {CANCELLED} cancelled: {growth}")
    assert (after.pages_used, after.slots_busy) == (0, 0) == (before.pages_used, before.slots_busy)
    assert files <= 4
    assert threads <= 2
    assert grown < 16
