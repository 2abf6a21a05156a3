"""A daemon whose database is damaged serves what is whole, says so everywhere, and is made whole again."""

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from edge_rag.client import CallStatus, Client, ClientError, DaemonState
from tests.e2e.support.running_daemon import ROOT, RunningDaemon, ingest

_TEXTS = {
    "pump.txt": "The bearings of the feed pump are greased every 500 hours. " * 20,
    "valve.txt": "The inlet valve is opened by a quarter turn before the start. " * 200,
    "filter.txt": "The oil filter is cleaned with compressed air on Mondays. " * 20,
}


def edge_rag(*arguments: str) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "edge_rag.cli.main", *arguments, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, answer


def health(address: str, service: str) -> int:
    with grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        return int(stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=60).status)


def damage(database: Path) -> None:
    """Flips a byte in the text of one document and in the passages of another."""
    content = bytearray(database.read_bytes())
    for word in (b"quarter turn", b"compressed air"):
        content[content.rindex(word)] ^= 1
    database.write_bytes(content)


def test_a_daemon_with_a_damaged_database_serves_what_is_whole_until_it_is_repaired(
    start: Callable[..., RunningDaemon], tmp_path: Path, free_port: int
) -> None:
    """One damaged page must not stop the box; nothing may be written beside the damage; and there is a way back."""
    first = start()
    ingest(first.address, {name: text.encode() for name, text in _TEXTS.items()})
    assert health(first.address, "writes") == health_pb2.HealthCheckResponse.SERVING
    assert first.stop() == 0
    database = tmp_path / "data" / "documents.sqlite3"
    damage(database)
    content = database.read_bytes()

    recovering = start(config=f"[metrics]\nport = {free_port}\n")

    with Client(recovering.address) as client:
        status = client.status()
        assert status.state is DaemonState.RECOVERY
        assert status.damage is not None
        assert (status.damage.kept + status.damage.rebuilt, status.damage.lost) == (len(_TEXTS), 0)
        assert "doctor --repair" in status.damage.problem
        assert client.search("How often are the bearings greased?").hits[0].document == "pump.txt"
        assert client.search("How is the oil filter cleaned?").hits[0].document == "filter.txt"
        assert client.document("valve.txt").text.split() == _TEXTS["valve.txt"].split()
        for change in (
            lambda: client.delete("pump.txt"),
            lambda: client.ingest("new.txt", lambda: io.BytesIO(b"Something new.")),
            lambda: client.create_collection("new"),
        ):
            with pytest.raises(ClientError, match="doctor --repair") as refused:
                change()
            assert refused.value.status is CallStatus.FAILED_PRECONDITION
    assert health(recovering.address, "") == health_pb2.HealthCheckResponse.SERVING
    assert health(recovering.address, "writes") == health_pb2.HealthCheckResponse.NOT_SERVING
    metrics = urlopen(f"http://127.0.0.1:{free_port}/metrics").read().decode()
    assert "edge_rag_recovery_mode 1.0" in metrics
    assert "the library is damaged" in recovering.log.read_text()
    code, told = edge_rag("status", "--server", recovering.address)
    assert (code, told["state"], told["damage"]["lost"]) == (0, "recovery", 0)
    assert edge_rag("doctor", "--repair", "--yes", "--data-dir", str(tmp_path / "data"))[0] != 0  # the daemon has it
    assert recovering.stop() == 0
    assert database.read_bytes() == content

    code, repair = edge_rag("doctor", "--repair", "--yes", "--data-dir", str(tmp_path / "data"))

    assert code == 0
    assert {each["name"]: each["origin"] for each in repair["documents"]}.keys() == _TEXTS.keys()
    assert (Path(repair["kept_in"]) / "documents.sqlite3").read_bytes() == content
    repaired = start()
    with Client(repaired.address) as client:
        assert client.status().state is DaemonState.SERVING
        assert client.search("How is the oil filter cleaned?").hits[0].document == "filter.txt"
        client.delete("pump.txt")
        assert {info.name for info in client.documents()} == _TEXTS.keys() - {"pump.txt"}
