"""A box that is found, paired with, followed and told from impostors: a real daemon between network namespaces."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from watchfiles import watch

from edge_rag.access.certificates import CertificateFolder, fingerprint
from edge_rag.discovery.announcer import Announcement, Announcer, FoundServer
from edge_rag.discovery.browser import Browser, browse
from tests.e2e.support.interceptor import Interceptor
from tests.e2e.support.running_daemon import ROOT, RunningDaemon, start_daemon
from tests.e2e.support.secured_daemon import edge_rag
from tests.support.network_namespaces import Machine, machines_of_a_network

WAIT_S = 30.0
NOT_ANNOUNCED = "this box is not announced on the network"
PORT = 7421
MOVED = "10.77.0.99"


@dataclass(frozen=True)
class Place:
    """A box, a client and somebody else on one network."""

    box: Machine
    client: Machine
    stranger: Machine
    daemon: RunningDaemon
    folder: Path

    def edge_rag(self, home: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs the command line on the client's machine, for a user with credentials of their own."""
        command = [sys.executable, "-m", "edge_rag.cli.main", *arguments]
        environment = {key: value for key, value in os.environ.items() if key != "EDGE_RAG_SERVER"}
        environment["XDG_CONFIG_HOME"] = str(self.folder / home)
        return self.client.run(
            lambda: subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=60)
        ).result()

    def discovered(self, home: str) -> list[dict[str, object]]:
        said = self.edge_rag(home, "discover", "--json", "--timeout", "2")
        found: list[dict[str, object]] = json.loads(said.stdout)["servers"]
        assert said.returncode == any(server["status"] == "mismatch" for server in found)
        return found

    def pair(self, home: str, *address: str) -> None:
        made = edge_rag("pair", "--name", home, "--json", data=self.daemon.data_dir)
        connected = self.edge_rag(home, "connect", *address, "--code", json.loads(made)["code"])
        assert connected.returncode == 0, connected.stderr

    def wait_for(self, enough: Callable[[tuple[FoundServer, ...]], bool]) -> None:
        assert enough(self.client.run(lambda: browse(WAIT_S, enough)).result())

    def wait_for_log(self, words: str) -> None:
        log = self.daemon.log
        changes = watch(log, rust_timeout=int(1000 * WAIT_S), yield_on_timeout=True)
        assert words in log.read_text() or any(words in log.read_text() for found in changes if found)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("place")
    data = folder / "data"
    with machines_of_a_network(3) as (box, client, stranger):
        for arguments in (["tls", "init", "--host", "box.lan"], ["token", "create", "--name", "first"]):
            edge_rag(*arguments, data=data)
        config = f"local_listen = '127.0.0.1:{PORT + 1}'\n[discovery]\nname = 'engine-room'\n"
        running = box.run(lambda: start_daemon(data, folder / "log", config, listen=f"0.0.0.0:{PORT}")).result()
        try:
            yield Place(box, client, stranger, running, folder)
        finally:
            running.kill()


def at(address: str) -> Callable[[tuple[FoundServer, ...]], bool]:
    return lambda found: any(f"{address}:{PORT}" in server.addresses for server in found)


def test_a_box_is_found_paired_with_and_called_without_its_address(place: Place) -> None:
    place.wait_for(at(place.box.address))
    (found,) = place.discovered("tablet")
    authority = (place.daemon.data_dir / "tls" / "ca.pem").read_bytes()
    assert (found["name"], found["status"], found["tls"]) == ("engine-room", "unpaired", True)
    assert (found["server"], found["sha256"]) == (f"{place.box.address}:{PORT}", fingerprint(authority))
    refused = place.edge_rag("tablet", "docs", "list")
    assert (refused.returncode, "no daemon answers at 127.0.0.1:7421" in refused.stderr) == (3, True)
    place.pair("tablet")
    listed = place.edge_rag("tablet", "collections", "list", "--json")
    assert (listed.returncode, listed.stderr) == (0, "")


def test_a_box_is_followed_to_another_address(place: Place) -> None:
    place.pair("laptop", f"{place.box.address}:{PORT}")
    place.box.ip("addr", "add", f"{MOVED}/16", "dev", "net0")
    place.box.ip("addr", "del", f"{place.box.address}/24", "dev", "net0")
    place.wait_for(at(MOVED))
    followed = place.edge_rag("laptop", "collections", "list", "--json")
    assert followed.returncode == 0, followed.stderr
    assert f"engine-room is now at {MOVED}:{PORT}" in followed.stderr
    kept = json.loads((place.folder / "laptop" / "edge-rag" / "servers.json").read_text())["servers"]
    assert [server["address"] for server in kept] == [f"{MOVED}:{PORT}"]
    place.box.ip("addr", "add", f"{place.box.address}/24", "dev", "net0")
    place.box.ip("addr", "del", f"{MOVED}/16", "dev", "net0")
    place.wait_for(at(place.box.address))


def test_an_impostor_is_told_nothing_and_named_as_one_while_the_box_serves_on(place: Place) -> None:
    place.pair("phone", f"{place.box.address}:{PORT}")
    own = CertificateFolder(place.daemon.data_dir / "tls")
    known = own.server.identity(own.authority_certificate)
    theirs = CertificateFolder(place.folder / "theirs")
    theirs.make("box", ["box.lan", known.server_name], datetime.now(UTC))

    def pretend() -> tuple[Interceptor, Announcer]:
        listening = Interceptor(theirs, 0, "", place.stranger.address)
        port = int(listening.address.rpartition(":")[2])
        lies = Announcement("engine-room", port, "0.1.0", True, known.fingerprint, ())
        announcer = Announcer(lambda: lies)
        announcer.start()
        return listening, announcer

    place.box.ip("link", "set", "net0", "down")
    listening, announcer = place.stranger.run(pretend).result()
    try:
        place.wait_for(lambda found: any(listening.address in server.addresses for server in found))
        refused = place.edge_rag("phone", "collections", "list")
        assert (refused.returncode, "WARNING" in refused.stderr) == (5, True)
        assert "is not engine-room, which is known here" in refused.stderr
        serving = place.box.run(lambda: local_health(PORT + 1)).result()
        assert serving.returncode == 0, serving.stderr
        place.wait_for_log(NOT_ANNOUNCED)
        place.box.ip("link", "set", "net0", "up")
        place.wait_for(at(place.box.address))
        assert sorted(str(server["status"]) for server in place.discovered("phone")) == ["mismatch", "paired"]
        listed = place.edge_rag("phone", "collections", "list", "--json")
        assert listed.returncode == 0, listed.stderr
    finally:
        announcer.close()
        listening.close()
    assert listening.connections > 0
    assert listening.heard == b""
    assert NOT_ANNOUNCED in place.daemon.log.read_text()


def local_health(port: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "edge_rag.cli.main", "status", "--server", f"127.0.0.1:{port}"]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)


def test_a_box_that_drains_withdraws_what_it_announced(place: Place) -> None:
    place.wait_for(at(place.box.address))

    async def until_gone() -> None:
        async with Browser() as browser, asyncio.timeout(WAIT_S):
            while not browser.found():
                await browser.changed()
            place.daemon.process.send_signal(signal.SIGTERM)
            while browser.found():
                await browser.changed()

    place.client.run(lambda: asyncio.run(until_gone())).result()
    assert place.daemon.process.wait(WAIT_S) == 0
