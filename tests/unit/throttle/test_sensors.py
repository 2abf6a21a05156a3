from collections.abc import Mapping
from pathlib import Path

import pytest

from edge_rag.throttle.sensors import (
    EnergyMeter,
    PowerReading,
    read_event_counts,
    read_power,
    read_slowdowns,
    read_zones,
    temperatures,
)
from tests.unit.throttle.boards import (
    AMD_MINI_PC,
    INTEL_MINI_PC,
    JETSON_AGX_ORIN_POWER,
    JETSON_ORIN_NANO,
    JETSON_ORIN_NANO_POWER,
    RASPBERRY_PI_5,
    rapl,
    write_tree,
    zone,
)


@pytest.mark.parametrize(
    ("board", "expected"),
    [
        (RASPBERRY_PI_5, {"cpu-thermal": 54.8}),
        (JETSON_ORIN_NANO, {"cpu-thermal": 49.343, "gpu-thermal": 48.812, "cv0-thermal": 0, "tj-thermal": 50.687}),
        (INTEL_MINI_PC, {"acpitz": 27.8, "x86_pkg_temp": 61}),
        (AMD_MINI_PC, {"k10temp": 72.5}),
        ({}, {}),
    ],
    ids=["pi", "jetson", "intel", "amd", "nothing"],
)
def test_the_zones_of_each_board_are_read_once_and_in_order(
    tmp_path: Path, board: Mapping[str, str], expected: Mapping[str, float]
) -> None:
    found = {reading.zone: reading.celsius for reading in temperatures(write_tree(tmp_path, board))}
    assert list(found.items()) == list(expected.items())


def test_trip_points_are_the_lowest_of_their_type(tmp_path: Path) -> None:
    jetson, *_ = read_zones(write_tree(tmp_path, JETSON_ORIN_NANO))
    assert (jetson.passive_celsius, jetson.critical_celsius) == (99.0, 104.5)
    _, package = read_zones(write_tree(tmp_path / "intel", INTEL_MINI_PC))
    assert (package.passive_celsius, package.critical_celsius) == (None, None)


@pytest.mark.parametrize("temp", ["", "error\n", "-274000\n", "2147483647\n"], ids=["empty", "word", "cold", "huge"])
def test_a_sensor_without_a_valid_temperature_is_skipped(tmp_path: Path, temp: str) -> None:
    board = {**zone(0, "soc", 50_000), **zone(1, "modem", 0), "sys/class/thermal/thermal_zone1/temp": temp}
    assert [each.name for each in read_zones(write_tree(tmp_path, board))] == ["soc"]


def test_zones_of_the_same_name_are_numbered(tmp_path: Path) -> None:
    board = {**zone(0, "acpitz", 30_000), **zone(2, "acpitz", 40_000), **zone(10, "acpitz", 50_000)}
    assert [(z.name, z.celsius) for z in read_zones(write_tree(tmp_path, board))] == [
        ("acpitz", 30),
        ("acpitz 2", 40),
        ("acpitz 3", 50),
    ]


def test_a_jetson_with_an_input_channel_reports_that_channel(tmp_path: Path) -> None:
    assert read_power(write_tree(tmp_path, JETSON_ORIN_NANO_POWER)).watts == pytest.approx(5.016 * 1.224)


def test_a_jetson_with_rails_reports_their_sum(tmp_path: Path) -> None:
    assert read_power(write_tree(tmp_path, JETSON_AGX_ORIN_POWER)).watts == pytest.approx(5.7 + 1.9 + 4 + 1)


def test_the_platform_energy_counter_replaces_the_package_counters(tmp_path: Path) -> None:
    both = {**rapl(0, "package-0", 1_000_000), **rapl(1, "package-1", 2_000_000)}
    assert set(read_power(write_tree(tmp_path, both)).counters) == {"package-0", "package-1"}
    whole = {**both, **rapl(2, "psys", 9_000_000)}
    assert set(read_power(write_tree(tmp_path, whole)).counters) == {"psys"}


def test_a_board_without_power_sensors_has_neither_power_nor_energy(tmp_path: Path) -> None:
    meter = EnergyMeter()
    for now in (0.0, 2.0, 4.0):
        meter.observe(read_power(write_tree(tmp_path, RASPBERRY_PI_5)), now)
    assert (meter.watts, meter.joules) == (None, 0)


def test_a_counter_wrap_loses_no_energy(tmp_path: Path) -> None:
    meter = EnergyMeter()
    for now, microjoules in ((0.0, 9_000_000), (2.0, 9_900_000), (4.0, 1_900_000)):
        meter.observe(read_power(write_tree(tmp_path, rapl(0, "package-0", microjoules, full=10_000_000))), now)
    assert meter.joules == pytest.approx(0.9 + 2.0)
    assert meter.watts == pytest.approx(1.0)


def test_power_is_integrated_but_not_over_a_long_gap() -> None:
    meter = EnergyMeter()
    for now in (0.0, 2.0, 4.0, 10_000.0):
        meter.observe(PowerReading(5.0, {}), now)
    assert meter.joules == pytest.approx(10 + 10 + 300)


@pytest.mark.parametrize(
    ("flags", "words"),
    [("0", ()), ("50005", ("under-voltage", "throttled")), ("0x8", ("soft temperature limit",)), ("x", ())],
)
def test_a_raspberry_pi_reports_present_throttling_only(tmp_path: Path, flags: str, words: tuple[str, ...]) -> None:
    tree = {"sys/devices/platform/soc@107c000000/soc@107c000000:firmware/get_throttled": f"{flags}\n"}
    assert read_slowdowns(write_tree(tmp_path, tree)) == words


def test_an_active_cooling_device_is_a_slowdown_and_a_fan_is_not(tmp_path: Path) -> None:
    tree = {
        "sys/class/thermal/cooling_device0/type": "pwm-fan\n",
        "sys/class/thermal/cooling_device0/cur_state": "3\n",
        "sys/class/thermal/cooling_device1/type": "cpufreq-cpu0\n",
        "sys/class/thermal/cooling_device1/cur_state": "0\n",
        "sys/class/thermal/cooling_device2/type": "devfreq-17000000.gpu\n",
        "sys/class/thermal/cooling_device2/cur_state": "2\n",
    }
    assert read_slowdowns(write_tree(tmp_path, tree)) == ("the kernel throttles devfreq-17000000.gpu",)


def test_event_counters_are_summed(tmp_path: Path) -> None:
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
