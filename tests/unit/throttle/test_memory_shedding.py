import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.monitoring.event import AuditEvent, AuditEventKind
from edge_rag.core.monitoring.resources import ShedTarget
from edge_rag.throttle.hysteresis import LoadLevel
from edge_rag.throttle.memory_monitor import MemoryMonitor, MemoryShedder, ShedPolicy, memory_level
from edge_rag.throttle.sensors import MemoryReading, PressureTrigger, read_pressure
from tests.unit.throttle.boards import write_tree

GIB = 1 << 30
ORDER = [ShedTarget.PREFIX_CACHE, ShedTarget.BATCH, ShedTarget.ARENAS]


def reading(headroom: float, some: float | None = 0.0, full: float | None = 0.0) -> MemoryReading:
    return MemoryReading(int(headroom * GIB), 4 * GIB, some, full)


@pytest.mark.parametrize(
    ("result", "level"),
    [
        (reading(2.0), LoadLevel.LOW),
        (reading(0.3), LoadLevel.NORMAL),
        (reading(2.0, some=5), LoadLevel.NORMAL),
        (reading(0.1), LoadLevel.HIGH),
        (reading(2.0, some=11), LoadLevel.HIGH),
        (reading(0.03), LoadLevel.EXTREME),
        (reading(2.0, some=20, full=6), LoadLevel.EXTREME),
        (reading(2.0, some=None, full=None), LoadLevel.LOW),
        (reading(0.1, some=None, full=None), LoadLevel.HIGH),
    ],
)
def test_memory_is_rated_by_headroom_and_stalls(result: MemoryReading, level: LoadLevel) -> None:
    assert memory_level(result) is level


@pytest.mark.parametrize(
    ("board_mib", "headroom_mib", "level"),
    [
        (400, 31, LoadLevel.HIGH),
        (400, 33, LoadLevel.NORMAL),
        (16_000, 255, LoadLevel.HIGH),
        (16_000, 257, LoadLevel.NORMAL),
    ],
)
def test_the_reserve_is_bounded_on_small_and_large_boards(board_mib: int, headroom_mib: int, level: LoadLevel) -> None:
    assert memory_level(MemoryReading(headroom_mib << 20, board_mib << 20, None, None)) is level


def test_at_normal_load_nothing_changes() -> None:
    policy = ShedPolicy()
    for _ in range(2):
        policy.observe(reading(0.1))
    assert not any(policy.observe(reading(0.3)) for _ in range(100))
    assert list(policy.shed) == [ShedTarget.PREFIX_CACHE]


@given(st.lists(st.tuples(st.floats(0, 4), st.floats(0, 100) | st.none(), st.floats(0, 100) | st.none()), max_size=80))
def test_the_shed_targets_are_always_a_prefix_of_the_order(
    readings: list[tuple[float, float | None, float | None]],
) -> None:
    policy, shed = ShedPolicy(), set[ShedTarget]()
    for headroom, some, full in readings:
        for change in policy.observe(reading(headroom, some, full)):
            (shed.add if change.shed else shed.remove)(change.target)
        assert list(policy.shed) == ORDER[: len(shed)]
        assert set(policy.shed) == shed


def memory_tree(available_mib: int, some: float = 0.0) -> dict[str, str]:
    return {
        "proc/meminfo": f"MemTotal: 4194304 kB\nMemAvailable: {available_mib << 10} kB\nSwapTotal: 0 kB\n",
        "proc/pressure/memory": f"some avg10={some:.2f} avg60=0.00 avg300=0.00 total=1\n"
        "full avg10=0.50 avg60=0.00 avg300=0.00 total=1\n",
    }


def cgroup_tree(limit_mib: int, used_mib: int, some: float) -> dict[str, str]:
    folder = "sys/fs/cgroup/system.slice/edge-rag.service"
    return {
        "proc/self/cgroup": "0::/system.slice/edge-rag.service\n",
        "proc/self/mountinfo": "30 24 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n",
        f"{folder}/memory.max": f"{limit_mib << 20}\n",
        f"{folder}/memory.high": "max\n",
        f"{folder}/memory.current": f"{used_mib << 20}\n",
        f"{folder}/memory.stat": "inactive_file 0\n",
        f"{folder}/memory.pressure": f"some avg10={some:.2f} avg60=0 avg300=0 total=9\nfull avg10=0.10 total=1\n",
    }


def test_the_tightest_limit_and_the_highest_pressure_count(tmp_path: Path) -> None:
    root = write_tree(tmp_path, {**memory_tree(2048, some=3.0), **cgroup_tree(1000, 900, some=12.5)})
    result = read_pressure(root)
    assert (result.headroom_bytes, result.board_bytes) == (100 << 20, 1000 << 20)
    assert (result.some_percent, result.full_percent) == (12.5, 0.5)


def test_without_psi_only_the_headroom_counts(tmp_path: Path) -> None:
    tree = memory_tree(2048)
    del tree["proc/pressure/memory"]
    result = read_pressure(write_tree(tmp_path, tree))
    assert (result.headroom_bytes, result.some_percent, result.full_percent) == (2 << 30, None, None)


class Box:
    """A memory monitor and what it acts on."""

    def __init__(self, root: Path) -> None:
        self.sheds: list[tuple[bool, bool]] = []
        self.kept: list[bool] = []
        self.trims = 0
        self.events: list[AuditEvent] = []
        shedder = MemoryShedder(lambda drop, hold: self.sheds.append((drop, hold)), self.kept.append, self._trim, self)
        self.monitor = MemoryMonitor(root, shedder, 2.0, lambda: 7.0)

    def record(self, event: AuditEvent) -> None:
        self.events.append(event)

    def _trim(self) -> None:
        self.trims += 1


def test_the_monitor_sheds_in_order_and_restores_everything(tmp_path: Path) -> None:
    box = Box(write_tree(tmp_path, memory_tree(150)))
    for _ in range(6):
        box.monitor.check()
    assert box.sheds == [(True, False), (True, False), (True, True), (True, True), (True, True)]
    assert box.kept == [False]
    assert box.trims == 5
    assert list(box.monitor.state.shed) == ORDER
    assert box.monitor.state.headroom_bytes == 150 << 20
    write_tree(tmp_path, memory_tree(3000))
    for _ in range(20):
        box.monitor.check()
    assert box.sheds[-1] == (False, False)
    assert box.kept == [False, True]
    assert list(box.monitor.state.shed) == []
    assert {event.kind for event in box.events} == {AuditEventKind.SHED}
    assert [event.reason for event in box.events[:3]] == [
        "memory is short: the prefix cache is dropped",
        "memory is short: batch requests wait and new ones are refused",
        "memory is short: encoders keep no memory between runs",
    ]
    box.monitor.close()


def test_an_unarmed_trigger_still_waits_and_wakes(tmp_path: Path) -> None:
    trigger = PressureTrigger(tmp_path)
    assert not trigger.armed
    trigger.wait(0.01)
    waiting = threading.Thread(target=trigger.wait, args=(60,))
    waiting.start()
    trigger.wake()
    waiting.join(30)
    assert not waiting.is_alive()
    trigger.close()


def test_a_kernel_with_psi_arms_the_trigger() -> None:
    trigger = PressureTrigger(Path("/"))
    try:
        if not trigger.armed:
            pytest.skip("PSI triggers are not available")
        trigger.wait(0.01)
        assert trigger.armed
    finally:
        trigger.close()
