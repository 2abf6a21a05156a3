import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.client.channel import server_address
from edge_rag.discovery.announcer import SERVICE, Announcement, found_server

SHA256 = "ab" * 32
PROPERTIES = Announcement("engine room", 7421, "0.1.0", True, SHA256, ("10.0.0.7",)).properties()


def test_an_announcement_is_parsed_unchanged() -> None:
    found = found_server(f"engine room.{SERVICE}", PROPERTIES, ["fe80::1%3", "10.0.0.7", "2001:db8::7"], 7421)
    assert found is not None
    assert (found.name, found.version, found.tls, found.sha256) == ("engine room", "0.1.0", True, SHA256)
    assert found.addresses == ("10.0.0.7:7421", "[2001:db8::7]:7421", "[fe80::1%3]:7421")
    assert [server_address(address) for address in found.addresses] == list(found.addresses)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "::1",
        "0.0.0.0",
        "224.0.0.251",
        "255.255.255.255",
        "fe80::1",
        "fe80::1%\x1b[2J",
        "2001:db8::1%a b",
        "",
    ],
)
def test_an_unusable_address_is_dropped(address: str) -> None:
    assert found_server("box", PROPERTIES, [address], 7421) is None


@pytest.mark.parametrize("sha256", [None, b"", b"AB" * 32, b"ab" * 31, b"ab" * 32 + b"\n", b"\xff" * 64])
def test_an_announcement_without_a_fingerprint_is_ignored(sha256: bytes | None) -> None:
    assert found_server("box", PROPERTIES | {b"sha256": sha256}, ["10.0.0.7"], 7421) is None


@given(
    st.text(),
    st.dictionaries(
        st.sampled_from([b"sha256", b"version", b"tls", b"txtvers"]), st.one_of(st.none(), st.binary(max_size=255))
    ),
    st.lists(st.one_of(st.text(), st.ip_addresses().map(str)), max_size=40),
    st.one_of(st.none(), st.integers(-1, 70_000)),
)
def test_arbitrary_announcements_are_harmless(
    instance: str, properties: dict[bytes, bytes | None], addresses: list[str], port: int | None
) -> None:
    found = found_server(instance, PROPERTIES | properties, addresses, port)
    if found is None:
        return
    assert len(found.name) <= 63
    assert found.name.isprintable()
    assert re.fullmatch("[0-9a-f]{64}", found.sha256)
    assert len(found.version) <= 32
    assert 1 <= len(found.addresses) <= 8
    assert [server_address(address) for address in found.addresses] == list(found.addresses)


def test_control_and_invisible_characters_are_replaced() -> None:
    found = found_server("box\x1b[2J\u202e\u200b\ud800\n" + "x" * 100, PROPERTIES, ["10.0.0.7"], 7421)
    assert found is not None
    assert found.name == ("box\ufffd[2J" + "\ufffd" * 4 + "x" * 100)[:63]
