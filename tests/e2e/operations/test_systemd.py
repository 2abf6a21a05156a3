"""The unit as it is installed, under a real systemd that was booted for it. Only where asked for: it boots a system."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_rag.api.v1 import documents_pb2
from edge_rag.client import Client
from tests.e2e.support.booted_systemd import Booted, booting
from tests.e2e.support.running_daemon import ingest

pytestmark = pytest.mark.skipif(
    "EDGE_RAG_BOOT_SYSTEMD" not in os.environ, reason="EDGE_RAG_BOOT_SYSTEMD=1 boots a systemd for these"
)

SETTINGS = 'local_listen = "unix:/run/edge-rag/edge-rag.sock"\n[limits]\nrequest_seconds = {seconds}\n'
DOCUMENT = {"pump.txt": b"The pump bearings must be greased every 2,000 operating hours. Use lithium grease."}


@pytest.fixture(scope="module")
def booted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Booted]:
    with booting(tmp_path_factory.mktemp("booted")) as system:
        (system.root / "etc/edge-rag").mkdir(exist_ok=True)
        (system.root / "etc/edge-rag/edge-rag.toml").write_text(SETTINGS.format(seconds=300))
        system.run("systemctl", "daemon-reload")
        system.run("systemctl", "start", "edge-rag.service")  # returns once the daemon has said READY
        yield system


def address(system: Booted) -> str:
    return f"unix:{system.root}/run/edge-rag/edge-rag.sock"


def test_the_installed_unit_verifies(booted: Booted) -> None:
    assert booted.run("systemd-analyze", "verify", "--man=no", "edge-rag.service") == ""


def test_started_is_when_it_serves_as_its_own_user_in_its_own_directory(booted: Booted) -> None:
    said = booted.show("ActiveState", "SubState", "StatusText")
    assert (said["ActiveState"], said["SubState"]) == ("active", "running")
    assert said["StatusText"].startswith("serving on")
    with Client(address(booted), timeout_s=60) as client:
        client.wait_until_serving(60)
        assert client.status().data_directory == Path("/var/lib/edge-rag")
    assert (booted.root / "var/lib/edge-rag").stat().st_uid != 0


def test_a_reload_has_the_settings_read_again(booted: Booted) -> None:
    before = booted.show("MainPID")
    (booted.root / "etc/edge-rag/edge-rag.toml").write_text(SETTINGS.format(seconds=200))
    since = time.time()
    booted.run("systemctl", "reload", "edge-rag.service")
    booted.await_lines(since, "settings reloaded")
    assert booted.show("MainPID") == before


def test_a_daemon_that_hangs_is_restarted_by_the_watchdog_and_has_lost_nothing(booted: Booted) -> None:
    (outcome,) = ingest(address(booted), DOCUMENT)
    assert outcome.status == documents_pb2.INGEST_STATUS_ADDED, outcome.reason
    before = booted.show("MainPID", "NRestarts")
    since = time.time()
    booted.run("kill", f"-{signal.SIGSTOP.value}", before["MainPID"])
    booted.await_lines(since, "Watchdog timeout", "serving on")
    after = booted.show("MainPID", "NRestarts")
    assert after["MainPID"] != before["MainPID"]
    assert int(after["NRestarts"]) == int(before["NRestarts"]) + 1
    with Client(address(booted), timeout_s=60) as client:
        client.wait_until_serving(60)
        assert [info.name for info in client.documents()] == list(DOCUMENT)


def test_a_stop_drains_and_ends_in_good_order(booted: Booted) -> None:
    booted.run("systemctl", "stop", "edge-rag.service")
    assert booted.show("ActiveState", "Result") == {"ActiveState": "inactive", "Result": "success"}
