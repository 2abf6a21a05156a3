"""Strangers from 200 addresses and from 1,000 of one /64: known clients and right codes get in all the same."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import psutil
import pytest

from edge_rag.access.pairing_file import PairingFile, pairing
from edge_rag.api.v1 import admin_pb2, admin_pb2_grpc
from edge_rag.config.paths import pairing_path
from edge_rag.core.identity import Identity, Role
from edge_rag.core.pairing_code import PairingCode
from tests.e2e.support.legitimate_clients import Calls, Outcomes
from tests.e2e.support.running_daemon import ROOT, RunningDaemon, start_daemon
from tests.e2e.support.secured_daemon import edge_rag, token
from tests.e2e.support.strangers import Orders
from tests.support.network_namespaces import Machine, machines_of_a_network

TIMES = 100 if "EDGE_RAG_SOAK_SECONDS" in os.environ else 10
PORT = 7421
ADDRESSES = [f"10.77.8.{number}" for number in range(1, 201)]
OF_ONE_64 = [f"fd77:0:0:8::{number:x}" for number in range(1, 1001)]
MIB = 1 << 20
MOST_MIB = 192
"""Memory of 2,048 connections that gRPC accepts at most, and of what is allocated for them."""
CONFIG = 'local_listen = "127.0.0.1:0"\n[discovery]\nannounce = false\n'
EACH = {"resets": 1, "silent": 4, "handshake": 2, "idle": 2, "codes": 1}
"""Connections that each address has at once, by kind."""
ALL = list(EACH)
HASTY_S, PATIENT_S = 0.05, 5.0
"""How long strangers wait before they open another connection; the patient ones are hardly ever banned, seconds."""
SHORT = [pytest.param(ALL, HASTY_S, id="all")]
LONG = [
    *(pytest.param([kind], HASTY_S, id=kind) for kind in EACH),
    *SHORT,
    pytest.param(ALL, PATIENT_S, id="all, patient"),
]


@dataclass(frozen=True)
class Place:
    """A box, and a network of strangers and clients around it."""

    box: Machine
    outside: Machine
    daemon: RunningDaemon
    data: Path
    token: str

    def outside_process(self, module: str, orders: str) -> subprocess.Popen[str]:
        def begin() -> subprocess.Popen[str]:
            command = [sys.executable, "-m", module]
            return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)

        process = self.outside.run(begin).result()
        assert process.stdin is not None
        process.stdin.write(f"{orders}\n")
        process.stdin.flush()
        return process

    @contextmanager
    def flooded(
        self, sources: list[str], connections: dict[str, int], pause_s: float
    ) -> Iterator[dict[str, dict[str, int]]]:
        """Has strangers at work; tells at the end what they did."""
        orders = Orders({"4": self.box.address, "6": "fd77::1"}, PORT, sources, connections, pause_s)
        process = self.outside_process("tests.e2e.support.strangers", orders.json())
        did: dict[str, dict[str, int]] = {}
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "flooding\n"
            yield did
            process.send_signal(signal.SIGTERM)
            did |= json.loads(process.communicate(timeout=60)[0])
        finally:
            process.kill()
            process.communicate()

    def served(self, times: int) -> Outcomes:
        """Makes that many calls of a known client, and pairs as many new ones, from 200 addresses in turns."""
        file, now = PairingFile(pairing_path(self.data)), datetime.now(UTC)
        codes = []
        for number in range(times):
            code = PairingCode.make(bytes(32))
            identity = Identity(f"ward-{code.key}", frozenset({Role.READER}))
            file.add(pairing(code, identity, None, now, now + timedelta(hours=1)))
            codes.append((code.key, code.secret, f"10.77.9.{1 + number % 200}"))
        authority = str(self.data / "tls" / "ca.pem")
        calls = Calls(f"{self.box.address}:{PORT}", authority, self.token, times, codes)
        process = self.outside_process("tests.e2e.support.legitimate_clients", calls.json())
        return Outcomes(**json.loads(process.communicate()[0]))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("floods")
    data = folder / "data"
    with machines_of_a_network(2) as (box, outside):
        for machine, own in ((box, "fd77::1"), (outside, "fd77::2")):
            machine.ip("addr", "add", f"{own}/64", "dev", "net0", "nodad")
            machine.ip("addr", "add", f"fe80::{own[-1]}/64", "dev", "net0", "nodad")
        for network_of_many in ("10.77.8.0/24", "10.77.9.0/24"):
            box.ip("route", "add", network_of_many, "via", outside.address)
            outside.ip("route", "add", "local", network_of_many, "dev", "lo")
        box.ip("route", "add", "fd77:0:0:8::/64", "via", "fd77::2")
        outside.ip("route", "add", "local", "fd77:0:0:8::/64", "dev", "lo")
        edge_rag("tls", "init", "--host", box.address, data=data)
        known = token("known", data)
        start: Callable[[], RunningDaemon] = lambda: start_daemon(  # noqa: E731 - typed
            data, folder / "log", CONFIG, listen=f"[::]:{PORT}"
        )
        with box.run(start).result() as daemon:
            yield Place(box, outside, daemon, data, known)


def operator_is_served(place: Place) -> None:
    with grpc.insecure_channel(f"unix:{place.data}/edge-rag.sock") as channel:
        status = admin_pb2_grpc.AdminStub(channel).GetStatus(admin_pb2.GetStatusRequest(), timeout=60)
    assert status.state == admin_pb2.DAEMON_STATE_SERVING


@pytest.mark.soak
@pytest.mark.parametrize(("kinds", "pause_s"), LONG if TIMES == 100 else SHORT)
def test_strangers_keep_out_neither_a_known_client_nor_a_right_code_nor_the_operator(
    place: Place, kinds: list[str], pause_s: float, record_property: Callable[[str, object], None]
) -> None:
    assert place.served(1).failures == []
    sources = [place.outside.address, *ADDRESSES, *OF_ONE_64]  # the first is the known client's own
    resident = psutil.Process(place.daemon.process.pid).memory_info().rss
    with place.flooded(sources, {kind: EACH[kind] for kind in kinds}, pause_s) as did:
        outcomes = place.served(TIMES)
        operator_is_served(place)
        resident = psutil.Process(place.daemon.process.pid).memory_info().rss - resident
    opened = sum(did["opened"].values())
    record_property(
        "measured",
        f"{outcomes.known} of {TIMES} calls and {outcomes.paired} of {TIMES} codes beside {opened:,} connections of "
        f"strangers ({', '.join(kinds)}); the slowest took {outcomes.slowest_s:.1f} s, memory "
        f"{resident / MIB:+.0f} MiB",
    )
    assert outcomes.failures == []
    assert (outcomes.known, outcomes.paired) == (TIMES, TIMES)
    assert resident < MOST_MIB * MIB
    for kind in kinds:
        assert did["opened"][f"{kind} over IPv4"] > 0, did
