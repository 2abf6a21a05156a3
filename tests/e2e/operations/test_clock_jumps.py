"""A calendar clock that jumps by years under a daemon locks nobody out for good, and keeps nothing valid for good."""

import json
import mmap
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from edge_rag.api.v1 import access_pb2, access_pb2_grpc, documents_pb2, rag_pb2, rag_pb2_grpc
from edge_rag.core.pairing_code import PairingCode
from tests.e2e.support.jobs import final_states, start_job, watch
from tests.e2e.support.running_daemon import ingest, start_daemon
from tests.e2e.support.secured_daemon import Box, edge_rag, token

_YEAR_S = 365 * 24 * 3600
_SHIM = Path(__file__).parents[2] / "faults" / "clock.c"


@dataclass(frozen=True)
class ClockedBox:
    """A daemon on the network, and the offset of its calendar clock."""

    box: Box
    socket: str
    offset: mmap.mmap

    def jump(self, years: int) -> None:
        self.offset[:8] = struct.pack("<q", years * _YEAR_S)

    def search(self, name: str) -> grpc.StatusCode:
        request = rag_pb2.SearchRequest(query="When does the galley open?", collection="a")
        with self.box.channel(name) as channel:
            try:
                hits = rag_pb2_grpc.RagStub(channel).Search(request, timeout=60).hits
            except grpc.RpcError as error:
                return error.code()
        assert hits[0].document == "galley.txt"
        return grpc.StatusCode.OK

    def pair(self, code: PairingCode) -> grpc.StatusCode:
        with self.box.channel() as channel:
            try:
                request = access_pb2.PairRequest(key=code.key, secret=code.secret)
                access_pb2_grpc.AccessStub(channel).Pair(request, timeout=60)
            except grpc.RpcError as error:
                return error.code()
        return grpc.StatusCode.OK

    def store(self, name: str) -> None:
        (outcome,) = ingest(self.socket, {f"{name}.txt": f"The {name} is painted green.".encode()}, "a")
        assert outcome.status == documents_pb2.INGEST_STATUS_ADDED, outcome.reason
        job, accepted = start_job(self.socket, {f"{name}-job.txt": f"The {name} of the job is red.".encode()}, "a")
        assert final_states(watch(self.socket, job)) == dict.fromkeys(accepted, "added")


@pytest.fixture(scope="module")
def clocked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClockedBox]:
    folder = tmp_path_factory.mktemp("clock")
    library = folder / "clock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(library), str(_SHIM)], check=True)
    (folder / "offset").write_bytes(bytes(8))
    data = folder / "data"
    edge_rag("tls", "init", "--host", "127.0.0.1", data=data)
    tokens = {
        "lasting": token("lasting", data),
        "expiring": token("expiring", data, "--days", "30"),
        "rare": token("rare", data, "--quota", "3 requests/min"),
    }
    config = f'local_listen = "unix:{folder}/socket"\n[tls]\nalways = true\n'
    environment = {"LD_PRELOAD": str(library), "CLOCK_OFFSET_FILE": str(folder / "offset")}
    with (folder / "offset").open("r+b") as file, mmap.mmap(file.fileno(), 8) as offset:
        with start_daemon(data, folder / "log", config, environment) as running:
            socket = f"unix:{folder}/socket"
            ingest(socket, {"galley.txt": b"The galley opens at six in the morning."}, "a")
            yield ClockedBox(Box(running, data, tokens), socket, offset)


def test_a_jump_of_the_clock_ends_with_the_jump(clocked: ClockedBox) -> None:
    """Forward, everything with an end has ended; back, nothing more is valid than before; then all is as it was."""
    made = edge_rag("pair", "--name", "ward", "--json", data=clocked.box.data)
    code = PairingCode.parse(json.loads(made)["code"])
    assert clocked.search("expiring") is grpc.StatusCode.OK
    clocked.store("door")

    clocked.jump(10)
    assert clocked.search("lasting") is grpc.StatusCode.OK
    assert clocked.search("expiring") is grpc.StatusCode.UNAUTHENTICATED
    assert clocked.pair(code) is not grpc.StatusCode.OK
    clocked.store("gate")

    clocked.jump(-20)
    assert clocked.search("lasting") is grpc.StatusCode.OK
    assert clocked.pair(code) is not grpc.StatusCode.OK
    clocked.store("lift")

    clocked.jump(0)
    assert clocked.search("lasting") is grpc.StatusCode.OK
    assert clocked.search("expiring") is grpc.StatusCode.OK
    assert clocked.pair(code) is grpc.StatusCode.OK
    clocked.store("ramp")


def test_a_quota_is_neither_refilled_nor_blocked_by_a_jump(clocked: ClockedBox) -> None:
    clocked.jump(0)
    while clocked.search("rare") is grpc.StatusCode.OK:
        pass
    clocked.jump(5)
    assert clocked.search("rare") is grpc.StatusCode.RESOURCE_EXHAUSTED
    clocked.jump(-5)
    assert clocked.search("rare") is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert clocked.search("lasting") is grpc.StatusCode.OK
    clocked.jump(0)
