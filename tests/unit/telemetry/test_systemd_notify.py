import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_rag.telemetry.systemd_notify import SystemdNotifier
from tests.support.clock import Clock
from tests.support.systemd_socket import Manager


@pytest.fixture(params=["a path", "an abstract name"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    there = Manager(tmp_path / "notify" if request.param == "a path" else f"@edge-rag-{uuid.uuid4()}")
    yield there
    there.close()


def test_every_message_reaches_the_managers_socket_with_a_line_for_people(manager: Manager) -> None:
    told = SystemdNotifier.of(manager.environment())
    told.status("opening models")
    told.progress("indexing words")
    told.reloading()
    told.ready("serving\nREADY=0")
    told.stopping("letting calls finish")
    assert manager.next() == {"STATUS": "opening models"}
    assert manager.next() == {"STATUS": "indexing words", "EXTEND_TIMEOUT_USEC": "300000000"}
    reloading = manager.next()
    assert reloading.pop("MONOTONIC_USEC").isdecimal()
    assert reloading == {"RELOADING": "1", "STATUS": "reading settings"}
    assert manager.next() == {"READY": "1", "STATUS": "serving READY=0"}
    assert manager.next() == {"STOPPING": "1", "STATUS": "letting calls finish"}
    told.close()


def test_the_watchdog_is_fed_at_half_its_time_and_only_when_the_work_goes_on(manager: Manager) -> None:
    clock = Clock()
    told = SystemdNotifier(manager.address, 10.0, clock)
    sent = []
    for _ in range(30):
        clock.now += 1
        told.alive()
        sent.append(len(manager.waiting()))
    assert sent == [0, 0, 0, 0, 1] * 6
    clock.now += 100
    assert manager.waiting() == []
    told.close()


def test_a_full_socket_neither_holds_up_nor_counts_as_last_sent(manager: Manager) -> None:
    clock = Clock()
    told = SystemdNotifier(manager.address, 2.0, clock)
    for _ in range(5000):
        clock.now += 1
        told.alive()
    assert 0 < len(manager.waiting()) < 5000
    told.alive()
    assert manager.waiting() == [{"WATCHDOG": "1"}]
    told.close()


@pytest.mark.parametrize(
    ("environment", "fed"),
    [
        ({"WATCHDOG_USEC": "2000000"}, True),
        ({"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": str(os.getpid())}, True),
        ({"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": "1"}, False),
        ({"WATCHDOG_USEC": "soon"}, False),
        ({"WATCHDOG_USEC": "0"}, False),
        ({}, False),
    ],
)
def test_the_watchdog_is_fed_by_the_process_it_is_meant_for(
    environment: dict[str, str], fed: bool, tmp_path: Path
) -> None:
    manager = Manager(tmp_path / "notify")
    given = environment | manager.environment()
    told = SystemdNotifier.of(given)
    told._last_sent -= 3600
    told.alive()
    assert bool(manager.waiting()) is fed
    assert not given, "programs started later would speak for the daemon"
    told.close()
    manager.close()


@pytest.mark.parametrize("address", ["", "notify", "vsock:2:1234", "/nowhere/at/all"])
def test_without_a_manager_nothing_is_sent_and_nothing_fails(address: str) -> None:
    told = SystemdNotifier.of({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1"})
    told.ready("serving")
    told.alive()
    told.close()
    told.stopping("after the end")
