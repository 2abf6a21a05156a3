"""A remote that is looked for by its name, on a network of its own."""

from __future__ import annotations

import asyncio

import pytest

from edge_rag.discovery.announcer import Announcement, Announcer
from edge_rag.errors import RemoteFailed
from edge_rag.offload.remotes.connection import located
from tests.support.network_namespaces import Machine


def looked_for(machine: Machine, address: str, seconds: float) -> str:
    return machine.run(lambda: asyncio.run(located(address, seconds))).result()


def test_a_remote_is_where_a_box_of_its_name_says(machines: list[Machine]) -> None:
    box, client, _ = machines

    def announce() -> Announcer:
        announcer = Announcer(lambda: Announcement("office", 7421, "0.1.0", True, "a" * 64, ()), 0.1)
        announcer.start()
        return announcer

    announcer = box.run(announce).result()
    try:
        assert looked_for(client, "box:office", 20.0) == f"{box.address}:7421"
        with pytest.raises(RemoteFailed, match="no box named 'galley'"):
            looked_for(client, "box:galley", 0.5)
    finally:
        announcer.close()


def test_an_address_is_taken_as_it_is(machines: list[Machine]) -> None:
    assert looked_for(machines[0], "10.0.0.9:7421", 0.1) == "10.0.0.9:7421"


def test_without_a_network_that_is_what_is_said(machines: list[Machine]) -> None:
    _, client, _ = machines
    client.ip("link", "set", "net0", "down")
    with pytest.raises(RemoteFailed, match="cannot be looked for"):
        looked_for(client, "box:office", 0.5)
