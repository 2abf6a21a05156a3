"""Requests with random fields: each is answered or refused with a documented status, and the daemon goes on."""

import os
import random
from collections import Counter
from collections.abc import Callable

import grpc
import pytest

from edge_rag.api.v1 import rag_pb2, rag_pb2_grpc
from tests.e2e.support.random_messages import random_request
from tests.e2e.support.running_daemon import RunningDaemon, ingest, start_daemon
from tests.e2e.support.secured_daemon import METHODS, end

REQUESTS = 500 if "EDGE_RAG_SOAK_SECONDS" not in os.environ else 20_000
DOCUMENTED = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAVAILABLE,
}
ENDLESS = {("Admin", "WatchStatus"), ("Admin", "Backup"), ("Documents", "WatchJob"), ("Admin", "ListAuditEvents")}
"""They go on until they are left; their requests are parsed like the others'."""


@pytest.mark.soak
def test_random_fields_are_answered_or_refused_by_field_and_never_break_the_daemon(
    tmp_path_factory: pytest.TempPathFactory, record_property: Callable[[str, object], None]
) -> None:
    folder = tmp_path_factory.mktemp("random")
    chance = random.Random(20261122)
    methods = sorted(METHODS - ENDLESS)
    seen: Counter[grpc.StatusCode] = Counter()
    with start_daemon(folder / "data", folder / "log") as running:
        with grpc.insecure_channel(running.address) as channel:
            for number in range(REQUESTS):
                service, method = methods[number % len(methods)]
                request = random_request(service, method, chance)
                code, message = end(channel, service, method, request)
                assert code in DOCUMENTED, f"{service}.{method} {code} {message}: {request}"
                seen[code] += 1
        answers_still(running)
    assert seen[grpc.StatusCode.INVALID_ARGUMENT] > REQUESTS / 10
    assert "Traceback" not in (folder / "log").read_text()
    record_property("measured", f"{REQUESTS} random requests, {seen[grpc.StatusCode.OK]} of them legal")


def answers_still(running: RunningDaemon) -> None:
    ingest(running.address, {"pump.txt": b"The bearings are greased every 2,000 hours."})
    with grpc.insecure_channel(running.address) as channel:
        found = rag_pb2_grpc.RagStub(channel).Search(rag_pb2.SearchRequest(query="bearings", limit=1), timeout=30)
    assert found.hits[0].document == "pump.txt"
