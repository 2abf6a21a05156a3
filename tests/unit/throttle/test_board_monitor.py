from pathlib import Path

import pytest

from edge_rag.core.monitoring.event import AuditEvent, AuditEventKind
from edge_rag.core.monitoring.resources import ThrottleCause
from edge_rag.throttle.board_monitor import Actuators, BoardMonitor
from edge_rag.throttle.policy import HeatThresholds, ThrottlePolicy
from tests.unit.throttle.boards import JETSON_ORIN_NANO_POWER, write_tree, zone


class Box:
    """A board with a monitor, its actuators and a clock."""

    def __init__(self, root: Path, tokens_per_s: float = 10.0) -> None:
        self.now = 0.0
        self.shares: list[float] = []
        self.events: list[AuditEvent] = []
        actuators = Actuators(self.shares.append, lambda: tokens_per_s, self)
        policy = ThrottlePolicy(0.25, HeatThresholds(85, 8), None)
        self.monitor = BoardMonitor(root, policy, actuators, 2.0, lambda: self.now)

    def record(self, event: AuditEvent) -> None:
        self.events.append(event)

    def check(self, times: int) -> None:
        for _ in range(times):
            self.now += 2.0
            self.monitor.check()


def test_heat_limits_the_generator_and_every_change_is_an_audit_event(tmp_path: Path) -> None:
    box = Box(write_tree(tmp_path, zone(0, "soc", 88_000)))
    box.check(4)
    assert box.shares == pytest.approx([0.75, 0.5625])
    assert [*box.monitor.state.causes] == [ThrottleCause.HEAT]
    write_tree(tmp_path, zone(0, "soc", 60_000))
    box.check(10)
    assert box.shares == pytest.approx([0.75, 0.5625, 0.75, 1.0])
    assert (box.monitor.state.share, [*box.monitor.state.causes]) == (1.0, [])
    assert {event.kind for event in box.events} == {AuditEventKind.THROTTLED}
    assert [event.numbers["share"] for event in box.events] == pytest.approx(box.shares)
    assert box.events[0].numbers["celsius"] == 88
    assert box.events[0].request_id is None


def test_power_and_energy_per_token_are_reported(tmp_path: Path) -> None:
    box = Box(write_tree(tmp_path, JETSON_ORIN_NANO_POWER))
    box.check(3)
    assert box.monitor.state.watts == pytest.approx(6.139584)
    assert box.monitor.state.joules_per_token == pytest.approx(0.6139584)
    assert box.monitor.state.joules == pytest.approx(2 * 2 * 6.139584)
    silent = Box(tmp_path, tokens_per_s=0.0)
    silent.check(1)
    assert silent.monitor.state.joules_per_token is None


def test_a_counter_is_a_slowdown_only_while_it_increases(tmp_path: Path) -> None:
    counter = "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count"
    box = Box(write_tree(tmp_path, {counter: "7\n"}))
    box.check(1)
    assert [*box.monitor.state.slowdowns] == []
    write_tree(tmp_path, {counter: "9\n"})
    box.check(1)
    assert [*box.monitor.state.slowdowns] == ["processor core throttled"]
    box.check(1)
    assert [*box.monitor.state.slowdowns] == []


def test_a_board_without_sensors_is_never_throttled(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.check(50)
    assert (box.shares, box.monitor.state.watts, box.monitor.state.share) == ([], None, 1.0)
