"""A watch over a board's files moves the generator and says so; its state is what the last look saw."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_rag.core.monitoring.event import AuditEvent, AuditEventKind
from edge_rag.core.monitoring.resources import ThrottleCause
from edge_rag.throttle.board_monitor import BoardWatch, Levers
from edge_rag.throttle.policy import HeatPolicy, Throttle
from tests.unit.throttle.boards import JETSON_ORIN_NANO_POWER, write_tree, zone


class Box:
    """What a watch moves, and a clock."""

    def __init__(self, root: Path, tokens_per_s: float = 10.0) -> None:
        self.now = 0.0
        self.shares: list[float] = []
        self.decisions: list[AuditEvent] = []
        levers = Levers(self.shares.append, lambda: tokens_per_s, self)
        throttle = Throttle(0.25, HeatPolicy(85, 8), None)
        self.watch = BoardWatch(root, throttle, levers, 2.0, lambda: self.now)

    def record(self, decision: AuditEvent) -> None:
        self.decisions.append(decision)

    def look(self, times: int) -> None:
        for _ in range(times):
            self.now += 2.0
            self.watch.look()


def test_heat_restrains_the_generator_and_every_move_is_a_decision(tmp_path: Path) -> None:
    box = Box(write_tree(tmp_path, zone(0, "soc", 88_000)))
    box.look(4)
    assert box.shares == pytest.approx([0.75, 0.5625])
    assert [*box.watch.state.causes] == [ThrottleCause.HEAT]
    write_tree(tmp_path, zone(0, "soc", 60_000))
    box.look(10)
    assert box.shares == pytest.approx([0.75, 0.5625, 0.75, 1.0])
    assert (box.watch.state.share, [*box.watch.state.causes]) == (1.0, [])
    assert {decision.kind for decision in box.decisions} == {AuditEventKind.THROTTLED}
    assert [decision.numbers["share"] for decision in box.decisions] == pytest.approx(box.shares)
    assert box.decisions[0].numbers["celsius"] == 88
    assert box.decisions[0].request_id is None


def test_power_and_energy_for_a_token_are_told(tmp_path: Path) -> None:
    box = Box(write_tree(tmp_path, JETSON_ORIN_NANO_POWER))
    box.look(3)
    assert box.watch.state.watts == pytest.approx(6.139584)
    assert box.watch.state.joules_per_token == pytest.approx(0.6139584)
    assert box.watch.state.joules == pytest.approx(2 * 2 * 6.139584)
    silent = Box(tmp_path, tokens_per_s=0.0)
    silent.look(1)
    assert silent.watch.state.joules_per_token is None


def test_a_counter_that_grows_slows_down_only_while_it_does(tmp_path: Path) -> None:
    counter = "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count"
    box = Box(write_tree(tmp_path, {counter: "7\n"}))
    box.look(1)
    assert [*box.watch.state.slowdowns] == []
    write_tree(tmp_path, {counter: "9\n"})
    box.look(1)
    assert [*box.watch.state.slowdowns] == ["processor core throttled"]
    box.look(1)
    assert [*box.watch.state.slowdowns] == []


def test_an_empty_board_is_never_held_back(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.look(50)
    assert (box.shares, box.watch.state.watts, box.watch.state.share) == ([], None, 1.0)
