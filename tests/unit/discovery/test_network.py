"""Announcing and looking, over multicast DNS between network namespaces."""

import asyncio
import platform
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import structlog

from edge_rag.discovery.announcer import SERVICE, Announcement, Announcer, FoundServer
from edge_rag.discovery.browser import Browser, browse
from edge_rag.discovery.transport import multicast_addresses
from edge_rag.errors import DiscoveryUnavailable
from tests.support.network_namespaces import Machine

pytestmark = pytest.mark.daemon

ROOT = Path(__file__).parents[3]
LOOK_S = 0.1
WAIT_S = 20.0


def announcement(name: str = "engine-room", digit: str = "a") -> Announcement:
    return Announcement(name, 7421, "0.1.0", True, digit * 64, ())


@contextmanager
def announced(machine: Machine, describe: Callable[[], Announcement] = announcement) -> Iterator[Announcer]:
    def begin() -> Announcer:
        announcer = Announcer(describe, LOOK_S)
        announcer.start()
        return announcer

    announcer = machine.run(begin).result()
    try:
        yield announcer
    finally:
        announcer.close()


def seen(machine: Machine, enough: Callable[[tuple[FoundServer, ...]], bool]) -> tuple[FoundServer, ...]:
    found = machine.run(lambda: browse(WAIT_S, enough)).result()
    assert enough(found), found
    return found


def names(*expected: str) -> Callable[[tuple[FoundServer, ...]], bool]:
    return lambda found: {server.name for server in found} == set(expected)


def test_an_ipv6_only_network_works(machines: list[Machine]) -> None:
    box, client, _ = machines
    for machine, address in ((box, "fd00:77::1"), (client, "fd00:77::2")):
        machine.ip("addr", "add", f"{address}/64", "dev", "net0", "nodad")
        machine.ip("addr", "del", f"{machine.address}/24", "dev", "net0")
    with announced(box):
        (found,) = seen(client, names("engine-room"))
    assert found.addresses == ("[fd00:77::1]:7421",)


def test_a_stopped_box_disappears_and_a_changed_address_is_followed(machines: list[Machine]) -> None:
    box, client, _ = machines
    address = f"{box.address}:7421"

    async def follow(announcer: Announcer) -> None:
        async with Browser() as browser, asyncio.timeout(WAIT_S):
            while not any(address in server.addresses for server in browser.found()):
                await browser.changed()
            box.ip("addr", "add", "10.77.0.99/16", "dev", "net0")
            box.ip("addr", "del", f"{box.address}/24", "dev", "net0")
            while not any("10.77.0.99:7421" in server.addresses for server in browser.found()):
                await browser.changed()
            await asyncio.to_thread(announcer.close)
            while browser.found():
                await browser.changed()

    with announced(box) as announcer:
        client.run(lambda: asyncio.run(follow(announcer))).result()


def test_a_second_box_of_the_same_name_gets_a_number(machines: list[Machine]) -> None:
    one, client, other = machines
    with announced(one):
        seen(client, names("engine-room"))
        with announced(other, lambda: announcement(digit="b")):
            found = seen(client, names("engine-room", "engine-room-2"))
    assert {server.name: server.sha256[0] for server in found} == {"engine-room": "a", "engine-room-2": "b"}


def test_a_name_conflict_after_a_network_split_is_resolved(machines: list[Machine]) -> None:
    one, client, other = machines
    other.plug(in_=False)
    with announced(one), announced(other, lambda: announcement(digit="b")):
        seen(client, names("engine-room"))
        seen(other, names("engine-room"))
        other.plug(in_=True)
        found = seen(client, names("engine-room", "engine-room-2"))
    assert {server.sha256[0] for server in found} == {"a", "b"}


def test_a_change_of_the_box_is_announced(machines: list[Machine]) -> None:
    box, client, _ = machines
    digit = "a"
    with announced(box, lambda: announcement(digit=digit)):
        seen(client, lambda found: any(server.sha256 == "a" * 64 for server in found))
        digit = "b"
        seen(client, lambda found: any(server.sha256 == "b" * 64 for server in found))


def test_without_a_network_it_logs_once_and_retries(machines: list[Machine]) -> None:
    box, client, _ = machines
    box.ip("link", "set", "net0", "down")
    attempts = 0
    retried = threading.Event()

    def describe() -> Announcement:
        nonlocal attempts
        attempts += 1
        if attempts == 4:
            retried.set()
        return announcement()

    with structlog.testing.capture_logs() as logged:
        with announced(box, describe):
            assert retried.wait(WAIT_S)
            warnings = [line for line in logged if line["log_level"] == "warning"]
            assert len(warnings) == 1
            assert "no network" in warnings[0]["reason"]
            box.ip("link", "set", "net0", "up")
            seen(client, names("engine-room"))


def test_browsing_without_a_network_fails(machines: list[Machine]) -> None:
    _, client, _ = machines
    client.ip("link", "set", "net0", "down")
    with pytest.raises(DiscoveryUnavailable, match="no network"):
        client.run(lambda: browse(WAIT_S)).result()


def test_addresses_are_of_interfaces_that_are_up_except_loopback(machines: list[Machine]) -> None:
    box, *_ = machines
    box.ip("addr", "add", "10.88.0.1/24", "dev", "net0", "label", "net0:1")
    box.ip("addr", "add", "fd00:77::1/64", "dev", "net0", "nodad")
    found = box.run(multicast_addresses).result()
    assert found == (box.address, "10.88.0.1", "fd00:77::1")


HOSTILE_TEXTS = [
    b"",
    b"\x00",
    b"\xff" * 300,
    b"\x08sha256=\xff",
    b"\x47sha256=" + b"a" * 64,
    b"".join(b"\x07a=\x1b[2Jx" for _ in range(200)),
    b"\x47sha256=" + b"c" * 64 + b"\x10version=\x1b[2J\x07\xff\xfe\x00",
]
HOSTILE_NAMES = [b"\x1b]0;mine\x07", b"\xff\xfe", "\u202eenigne".encode(), b"a\n\rb", b"x" * 63, b"\x00", b"."]


def dns_name(*labels: bytes) -> bytes:
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


def dns_record(name: bytes, kind: int, data: bytes) -> bytes:
    return name + struct.pack(">HHIH", kind, 0x8001 if kind != 12 else 1, 120, len(data)) + data


def hostile_packets() -> Iterator[bytes]:
    """Malformed announcements, and packets that are not announcements."""
    service = dns_name(*SERVICE.rstrip(".").encode().split(b"."))
    for number, (instance, text) in enumerate(zip(HOSTILE_NAMES, HOSTILE_TEXTS, strict=True)):
        name, host = bytes([len(instance)]) + instance + service, dns_name(b"h%d" % number, b"local")
        records = [
            dns_record(service, 12, name),
            dns_record(name, 33, struct.pack(">HHH", 0, 0, number * 10_000) + host),
            dns_record(name, 16, text),
            dns_record(host, 1, bytes([10, 77, 0, 3])),
            dns_record(host, 1, bytes([127, 0, 0, 1])),
        ]
        yield struct.pack(">HHHHHH", 0, 0x8400, 0, len(records), 0, 0) + b"".join(records)
    for size in (0, 1, 11, 12, 200, 1400, 8900):
        yield b"\x00\x00\x84\x00\xff\xff\xff\xff" + b"\xc0\x0c" * (size // 2)


def test_hostile_announcements_are_harmless_to_a_browser(machines: list[Machine]) -> None:
    box, client, attacker = machines
    attacking, over = threading.Event(), threading.Event()

    def attack() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as raw:
            raw.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(attacker.address))
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            raw.bind((attacker.address, 5353))
            for _ in range(200):
                for packet in hostile_packets():
                    raw.sendto(packet, ("224.0.0.251", 5353))
                attacking.set()
                if over.wait(0.1):
                    return

    attack_is_over = attacker.run(attack)
    assert attacking.wait(WAIT_S)
    with announced(box):
        found = seen(client, lambda now: {"engine-room", "."} <= {server.name for server in now})
    over.set()
    attack_is_over.result()
    assert {server.sha256[0] for server in found if server.name == "engine-room"} == {"a"}
    assert all(server.name.isprintable() and server.version.isprintable() for server in found)


CONFINED = """
import ctypes, errno, json, platform, socket, struct, sys
# As RestrictAddressFamilies does: no socket of the family AF_NETLINK.
number = {"x86_64": 41, "aarch64": 198}[platform.machine()]
lines = [(0x20, 0, 0, 0), (0x15, 0, 3, number), (0x20, 0, 0, 16), (0x15, 0, 1, socket.AF_NETLINK),
         (0x06, 0, 0, 0x00050000 | errno.EAFNOSUPPORT), (0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
program = ctypes.create_string_buffer(struct.pack("HP", len(lines), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program) == 0
try:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)
except OSError as error:
    assert error.errno == errno.EAFNOSUPPORT
else:
    raise AssertionError("not confined")
from edge_rag.discovery.announcer import Announcement
from edge_rag.discovery.announcer import Announcer
announcer = Announcer(lambda: Announcement("confined", 7421, "0.1.0", True, "a" * 64, ()))
announcer.start()
sys.stdin.read()
announcer.close()
"""


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="the filter is for two kinds of processor")
def test_a_service_without_netlink_is_announced(machines: list[Machine]) -> None:
    box, client, _ = machines
    command = [sys.executable, "-c", CONFINED]
    confined = box.run(
        lambda: subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, text=True)
    ).result()
    try:
        (found,) = seen(client, names("confined"))
    finally:
        _, describe = confined.communicate("", timeout=WAIT_S)
    assert confined.returncode == 0, describe
    assert f"{box.address}:7421" in found.addresses
