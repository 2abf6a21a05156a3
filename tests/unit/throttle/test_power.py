"""Power and energy are read off what boards show."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_rag.throttle.sensors import EnergyMeter, PowerReading, read_event_counts, read_power, read_slowdowns
from tests.unit.throttle.boards import (
    JETSON_AGX_ORIN_POWER,
    JETSON_ORIN_NANO_POWER,
    RASPBERRY_PI_5,
    rapl,
    write_tree,
)


def test_a_jetson_that_measures_its_input_takes_that_and_no_part_twice(tmp_path: Path) -> None:
    assert read_power(write_tree(tmp_path, JETSON_ORIN_NANO_POWER)).watts == pytest.approx(5.016 * 1.224)


def test_a_jetson_that_measures_rails_takes_their_sum(tmp_path: Path) -> None:
    assert read_power(write_tree(tmp_path, JETSON_AGX_ORIN_POWER)).watts == pytest.approx(5.7 + 1.9 + 4 + 1)


def test_processors_count_energy_and_the_whole_board_beats_its_parts(tmp_path: Path) -> None:
    both = {**rapl(0, "package-0", 1_000_000), **rapl(1, "package-1", 2_000_000)}
    assert set(read_power(write_tree(tmp_path, both)).counters) == {"package-0", "package-1"}
    whole = {**both, **rapl(2, "psys", 9_000_000)}
    assert set(read_power(write_tree(tmp_path, whole)).counters) == {"psys"}


def test_a_board_that_measures_nothing_has_neither_power_nor_energy(tmp_path: Path) -> None:
    meter = EnergyMeter()
    for now in (0.0, 2.0, 4.0):
        meter.observe(read_power(write_tree(tmp_path, RASPBERRY_PI_5)), now)
    assert (meter.watts, meter.joules) == (None, 0)


def test_a_counter_that_begins_again_loses_nothing(tmp_path: Path) -> None:
    meter = EnergyMeter()
    for now, microjoules in ((0.0, 9_000_000), (2.0, 9_900_000), (4.0, 1_900_000)):
        meter.observe(read_power(write_tree(tmp_path, rapl(0, "package-0", microjoules, full=10_000_000))), now)
    assert meter.joules == pytest.approx(0.9 + 2.0)
    assert meter.watts == pytest.approx(1.0)


def test_measured_power_adds_up_over_time_but_not_over_a_long_sleep() -> None:
    meter = EnergyMeter()
    for now in (0.0, 2.0, 4.0, 10_000.0):
        meter.observe(PowerReading(5.0, {}), now)
    assert meter.joules == pytest.approx(10 + 10 + 300)


@pytest.mark.parametrize(
    ("flags", "words"),
    [("0", ()), ("50005", ("under-voltage", "throttled")), ("0x8", ("soft temperature limit",)), ("x", ())],
)
def test_a_raspberry_pi_says_what_slows_it_down_now_not_what_once_did(
    tmp_path: Path, flags: str, words: tuple[str, ...]
) -> None:
    tree = {"sys/devices/platform/soc@107c000000/soc@107c000000:firmware/get_throttled": f"{flags}\n"}
    assert read_slowdowns(write_tree(tmp_path, tree)) == words


def test_a_kernel_that_slows_the_processor_down_says_so_and_a_fan_does_not(tmp_path: Path) -> None:
    tree = {
        "sys/class/thermal/cooling_device0/type": "pwm-fan\n",
        "sys/class/thermal/cooling_device0/cur_state": "3\n",
        "sys/class/thermal/cooling_device1/type": "cpufreq-cpu0\n",
        "sys/class/thermal/cooling_device1/cur_state": "0\n",
        "sys/class/thermal/cooling_device2/type": "devfreq-17000000.gpu\n",
        "sys/class/thermal/cooling_device2/cur_state": "2\n",
    }
    assert read_slowdowns(write_tree(tmp_path, tree)) == ("the kernel slows devfreq-17000000.gpu down",)


def test_counters_of_processors_and_over_current_are_added_up(tmp_path: Path) -> None:
    tree = {
        "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "3\n",
        "sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count": "4\n",
        "sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count": "9\n",
        "sys/class/hwmon/hwmon5/oc3_event_cnt": "2\n",
    }
    assert read_event_counts(write_tree(tmp_path, tree)) == {
        "processor core throttled": 7,
        "processor package throttled": 9,
        "over-current": 2,
    }
