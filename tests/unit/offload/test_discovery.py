import asyncio

import pytest

from edge_rag.discovery.announcer import Announcement, Announcer
from edge_rag.errors import RemoteFailed
from edge_rag.offload.remotes.connection import discover
from tests.support.network_namespaces import Machine


def discovered(machine: Machine, address: str, seconds: float) -> str:
    return machine.run(lambda: asyncio.run(discover(address, seconds))).result()


def test_a_name_resolves_to_the_announced_address(machines: list[Machine]) -> None:
    box, client, _ = machines

    def announce() -> Announcer:
        announcer = Announcer(lambda: Announcement("office", 7421, "0.1.0", True, "a" * 64, ()), 0.1)
        announcer.start()
        return announcer

    announcer = box.run(announce).result()
    try:
        assert discovered(client, "box:office", 20.0) == f"{box.address}:7421"
        with pytest.raises(RemoteFailed, match="no box named 'galley'"):
            discovered(client, "box:galley", 0.5)
    finally:
        announcer.close()


def test_without_a_network_the_error_says_so(machines: list[Machine]) -> None:
    _, client, _ = machines
    client.ip("link", "set", "net0", "down")
    with pytest.raises(RemoteFailed, match="discovery is unavailable"):
        discovered(client, "box:office", 0.5)
