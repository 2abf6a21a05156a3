"""Which connections stay, whatever strangers open."""

from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from edge_rag.core.address import Connection, network_of
from edge_rag.server.limits.connection_table import BAN_S, KNOWN_S, ConnectionLimits, ConnectionTable
from tests.support.examples import examples

LIMITS = ConnectionLimits(total=64, per_network=16)
CLIENT = "192.0.2.1"


class Clock:
    def __init__(self) -> None:
        self.now = 1.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


class Box:
    """A table and what is open."""

    def __init__(self, limits: ConnectionLimits = LIMITS) -> None:
        self.clock = Clock()
        self.table = ConnectionTable(limits, self.clock)
        self.open: dict[Connection, None] = {}
        self.port = 1024

    def connect(self, host: str) -> Connection:
        self.port += 1
        made = Connection(host, self.port)
        self.open[made] = None
        return made

    def look(self) -> set[Connection]:
        excess = self.table.update(list(self.open), self.clock())
        for connection in excess.connections:
            del self.open[connection]
        return set(excess.connections)


@settings(max_examples=examples(30), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 400))
def test_whatever_strangers_open_a_client_that_connects_and_calls_keeps_its_connection(
    random: Random, networks: int
) -> None:
    box = Box()
    steady = box.connect(CLIENT)
    box.table.identified(steady)
    for _ in range(8):
        for _ in range(random.randrange(200)):
            box.connect(f"10.0.{random.randrange(networks) // 256}.{random.randrange(networks) % 256}")
        new = box.connect(CLIENT)
        box.look()
        assert {steady, new} <= box.open.keys()
        box.table.identified(new)
        del box.open[new]
        counted = Counter(network_of(each.host) for each in box.open)
        assert max(counted.values()) <= LIMITS.per_network
        assert len(box.open) <= LIMITS.total
        assert box.table.unidentified <= LIMITS.unidentified


def test_a_client_that_was_never_here_before_is_not_among_the_first_to_go() -> None:
    box = Box()
    for number in range(200):
        for _ in range(5):
            box.connect(f"10.0.0.{number}")
    new = box.connect("198.51.100.7")
    box.look()
    assert new in box.open


def test_all_addresses_of_a_64_are_one_network_and_leave_room_for_others() -> None:
    box = Box()
    for number in range(1000):
        box.connect(f"2001:db8:0:1::{number:x}")
    client = box.connect("2001:db8:0:2::7")
    assert len(box.look()) == 1000
    assert client in box.open
    assert box.table.banned == ("2001:db8:0:1::/64",)


def test_newcomers_find_room_beside_any_number_of_identified_connections() -> None:
    box = Box()
    for number in range(100):
        box.table.identified(box.connect(f"192.0.2.{number}"))
    new = box.connect("198.51.100.7")
    assert len(box.look()) == 101 - LIMITS.identified - 1
    assert new in box.open


def test_a_stranger_behind_the_address_of_a_client_does_not_displace_it() -> None:
    box = Box()
    client = box.connect(CLIENT)
    box.table.identified(client)
    for _ in range(300):
        box.connect(CLIENT)
    new = box.connect(CLIENT)
    assert len(box.look()) == 302 - LIMITS.per_network
    assert {client, new} <= box.open.keys()
    assert box.table.banned == ()
    assert not box.table.ban(client)


def test_connections_of_this_host_do_not_count_for_others_and_its_addresses_are_not_banned() -> None:
    box = Box()
    own = [box.connect(f"127.0.0.{number}") for number in range(1, 200)]
    for _ in range(100):
        box.connect("10.0.0.1")
    box.look()
    assert set(own) <= box.open.keys()
    assert not box.table.ban(own[0])
    assert not box.table.ban(Connection("fe80::7%eth0", 5000))


def test_a_ban_ends_and_so_does_being_known() -> None:
    box = Box()
    assert box.table.ban(Connection("10.0.0.1", 5000))
    box.connect("10.0.0.1")
    assert len(box.look()) == 1
    box.clock.now += BAN_S
    assert box.table.lift_expired_bans()
    box.connect("10.0.0.1")
    assert not box.look()
    box.table.identified(Connection(CLIENT, 5000))
    assert box.table.is_known(CLIENT)
    assert not box.table.ban(Connection(CLIENT, 5000))
    box.clock.now += KNOWN_S + 1
    assert box.table.ban(Connection(CLIENT, 5000))


def test_a_call_on_a_connection_that_was_not_seen_yet_is_not_forgotten() -> None:
    box = Box()
    began = box.clock()
    new = box.connect("198.51.100.7")
    box.table.identified(new)
    box.table.update((), began)
    for _ in range(300):
        box.connect("198.51.100.7")
    box.look()
    assert new in box.open


def test_what_is_gone_is_forgotten() -> None:
    box = Box()
    for number in range(1000):
        box.table.identified(box.connect(f"192.0.{number // 256}.{number % 256}"))
    box.open.clear()
    box.look()
    assert len(box.table) == 0
